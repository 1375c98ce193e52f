/* The tiles, as figures.py makes them for who has no scripts. */

// The states that have a tile: these always, and another one from its first item on, since a tile that goes moves the others.
const SHOWN_STATES = new Set(['unknown', 'failed', 'completed']);

function quantile(ascending, share) {
  return ascending.length ? ascending[Math.max(Math.ceil(share * ascending.length) - 1, 0)] : null;
}

function figuresOf(store, places) {
  const counts = {};
  const durations = [];
  const intervals = [];
  let first = Infinity;
  let last = -Infinity;
  for (const place of places) {
    counts[store.state[place]] = (counts[store.state[place]] ?? 0) + 1;
    if (store.sent_at[place] !== null) first = Math.min(first, store.sent_at[place]);
    if (store.ended_at[place] !== null) last = Math.max(last, store.ended_at[place]);
    const duration = store.duration(place);
    if (duration === null) continue;
    durations.push(duration);
    if (store.polls[place]) intervals.push(duration / store.polls[place]);
  }
  return {
    counts,
    total: places.length,
    durations: Float64Array.from(durations).sort(),
    intervals: Float64Array.from(intervals).sort(),
    span: last > first ? (last - first) / 1000 : 0,
  };
}

function shareText(count, total) {
  if (!total) return '';
  const percent = (100 * count) / total;
  if (percent > 0 && percent < 0.1) return '< 0.1 %';
  return percent > 99.9 && percent < 100 ? '> 99.9 %' : `${decimal(percent, 1)} %`;
}

const rateText = (perHour) => (perHour >= 600 ? `${decimal(perHour / 60, 0)} / min` : `${decimal(perHour, 1)} / h`);

function medianTile(name, ascending) {
  const note = ascending.length ? `median; 9 of 10 within ${spanText(quantile(ascending, 0.9))}` : '';
  return { name, value: spanText(quantile(ascending, 0.5)), note };
}

function tilesOf(figures, { order }) {
  const { counts, total, durations, intervals, span } = figures;
  Object.keys(counts).forEach((state) => SHOWN_STATES.add(state));
  const outcomes = order
    .filter((state) => SHOWN_STATES.has(state))
    .map((state) => {
      const count = counts[state] ?? 0;
      return { name: state, state, value: grouped(count), note: shareText(count, total) };
    });
  const rate = span && durations.length ? (durations.length / span) * 3600 : null;
  const times = [
    medianTile('duration', durations),
    medianTile('noticed within', intervals),
    { name: 'throughput', value: rate === null ? NONE : rateText(rate), note: rate === null ? '' : 'jobs ended' },
  ];
  return { outcomes, figures: times };
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
