/* How the journal stands, the tiles and the reasons: what Python computes of all items. */

const shownTiles = new Set(); // a tile that goes would move the others

/* Return the tiles of figures by the ids of their lists. */
function tilesOf({ outcomes, times }) {
  for (const { name, is_shown } of outcomes) if (is_shown) shownTiles.add(name);
  return { outcomes: outcomes.filter(({ name }) => shownTiles.has(name)), figures: times };
}

/* Show tiles; those of states are buttons that filter the table. */
function showTiles(tiles, chosen) {
  for (const [id, group] of Object.entries(tiles)) update(byId(id), element('ul', {}, ...group.map((tile) => {
    const parts = ['name', 'value', 'note'].map((part) => element('span', { className: part }, tile[part]));
    const kind = tile.state ? ` state-${tile.state}` : '';
    const empty = tile.value === '0' ? ' none' : '';
    if (!tile.state) return element('li', { className: 'tile', 'data-tile': tile.name }, ...parts);
    const button = element('button', { type: 'button', 'data-state': tile.state, 'aria-pressed': String(tile.state === chosen) }, ...parts);
    return element('li', { className: `tile${kind}${empty}`, 'data-tile': tile.name }, button);
  })));
}

/* Show how the journal stands, as standing.py says it. */
function showStanding({ kind, words, command }) {
  const shown = byId('standing');
  shown.hidden = false;
  shown.dataset.kind = kind;
  shown.querySelector('.stands').textContent = words;
  if ((shown.querySelector('code')?.textContent ?? null) === command) return; // its button may have the keyboard
  shown.querySelector('.command')?.remove();
  if (command !== null) shown.append(commandToCopy('Continue with it', command));
}

/* Show the reasons as buttons that filter the table. The chosen one stays, also when no item has it any more: it takes the
   filter back. */
function showReasons(reasons, chosen) {
  const isThere = chosen === '' || reasons.some(({ reason }) => reason === chosen);
  const shown = isThere ? reasons : [...reasons, { reason: chosen, words: chosen }];
  byId('reasons').hidden = !shown.length;
  update(byId('reasons'), element('ul', {}, ...shown.map(({ reason, words }) => element('li', {},
    element('button', { type: 'button', 'data-reason': reason, 'aria-pressed': String(reason === chosen) }, words)))));
}
