/* The tiles, with the figures of all items that figures.py computes. */

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
