/* The histogram of durations, and what the charts share: colours and axes. */

const SVG = 'http://www.w3.org/2000/svg';

function svg(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/* Return a colour of the style as a canvas needs it: that of a property would still be one for light and one for dark. */
function colour(name) {
  const { style } = byId('active');
  style.color = `var(--${name})`;
  return getComputedStyle(byId('active')).color;
}

/* Return how a chart without jobs begins to say so. */
const jobWords = (store, indexes) => (indexes.length < store.size ? 'no job of this filter' : 'no job');

/* Return round counts from 0 to the first one that is not exceeded, at most six. */
function roundCounts(most) {
  for (let power = 1; ; power *= 10) {
    const step = [power, 2 * power, 5 * power].find((each) => most <= 5 * each);
    if (step) return Array.from({ length: Math.ceil(most / step) + 1 }, (_, index) => index * step);
  }
}

/* Return 0, and the powers of ten up to the first one that is not exceeded. */
function powersOfTen(most) {
  const counts = [0, 1];
  while (counts.at(-1) < most) counts.push(10 * counts.at(-1));
  return counts;
}

const HIDING = 50; // times as many in the highest bar as in the lowest: that one would hide
const SPANS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

/* Return round steps in seconds of which about `most` fit a span. */
function stepOf(seconds, most) {
  return SPANS.find((step) => seconds / step <= most) ?? Math.ceil(seconds / most / 86400) * 86400;
}

/* The bins of a histogram are equally wide on a logarithmic axis: jobs take seconds, or hours. */
function binsOf(store, indexes, number) {
  const jobs = indexes.filter((index) => store.duration(index) !== null && ENDED_JOBS.has(store.state[index]));
  if (!jobs.length) return null;
  const secondsOf = (index) => Math.max(store.duration(index), 0.001); // a logarithmic axis has no 0
  let [low, high] = [Infinity, -Infinity];
  for (const index of jobs) {
    const seconds = secondsOf(index);
    if (seconds < low) low = seconds;
    if (seconds > high) high = seconds;
  }
  if (high < low * 2) [low, high] = [low / 1.5, high * 1.5];
  const width = Math.log(high / low) / number;
  const bins = Array.from({ length: number }, (_, index) => ({
    from: low * Math.exp(index * width),
    to: low * Math.exp((index + 1) * width),
    counts: {},
    total: 0,
  }));
  for (const index of jobs) {
    const bin = bins[Math.min(Math.floor(Math.log(secondsOf(index) / low) / width), number - 1)];
    bin.counts[store.state[index]] = (bin.counts[store.state[index]] ?? 0) + 1;
    bin.total += 1;
  }
  return { bins, low, high };
}

const HISTOGRAM = { top: 8, bottom: 26, left: 50, right: 6, bins: 28 };

function drawHistogram(store, indexes) {
  const target = byId('histogram');
  const width = target.clientWidth || 300;
  const height = target.clientHeight || 240;
  const { top, bottom, left, right } = HISTOGRAM;
  target.setAttribute('viewBox', `0 0 ${width} ${height}`);
  const found = binsOf(store, indexes, Math.min(HISTOGRAM.bins, Math.floor((width - left - right) / 10)));
  if (!found) {
    byId('duration-hint').textContent = '';
    target.replaceChildren(svg('text', { x: width / 2, y: height / 2, class: 'none' }, `${jobWords(store, indexes)} has ended`));
    return;
  }
  const totals = found.bins.map((bin) => bin.total).filter((total) => total > 0);
  const isLogarithmic = Math.max(...totals) >= HIDING * Math.min(...totals);
  const counts = isLogarithmic ? powersOfTen(Math.max(...totals)) : roundCounts(Math.max(...totals));
  const share = isLogarithmic ? (count) => Math.log1p(count) / Math.log1p(counts.at(-1)) : (count) => count / counts.at(-1);
  byId('duration-hint').textContent = `from create to end, ${isLogarithmic ? 'both scales' : 'the time'} logarithmic`;
  const plot = height - top - bottom;
  const wide = (width - left - right) / found.bins.length;
  const bars = found.bins.map((bin, index) => {
    let bottomEdge = height - bottom;
    const group = svg('g', {}, svg('title', {}, `${spanText(bin.from)} to ${spanText(bin.to)}: ${grouped(bin.total)}`));
    for (const state of store.head.order.filter((name) => bin.counts[name])) {
      const high = Math.max((bin.counts[state] / bin.total) * share(bin.total) * plot, 1);
      bottomEdge -= high;
      const edges = { x: left + index * wide + 0.5, y: bottomEdge, width: Math.max(wide - 1, 1), height: high };
      group.append(svg('rect', { ...edges, class: `state-${state}` }));
    }
    return group;
  });
  const scale = (seconds) => left + (Math.log(seconds / found.low) / Math.log(found.high / found.low)) * (width - left - right);
  const lines = counts.flatMap((count) => {
    const y = Math.round(height - bottom - share(count) * plot) + 0.5;
    return [svg('line', { x1: left, x2: width, y1: y, y2: y }), svg('text', { x: left - 6, y: y + 4, class: 'count' }, grouped(count))];
  });
  target.replaceChildren(...lines, ...bars, ...durationAxis(found, scale, width, height - bottom));
}

function durationAxis({ low, high }, scale, width, y) {
  const ticks = [0.001, 0.01, 0.1, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18000, 43200, 86400, 259200];
  let last = -100;
  const shown = [];
  for (const tick of ticks.filter((seconds) => seconds >= low && seconds <= high)) {
    const x = scale(tick);
    if (x - last < 52 || x < 16 || x > width - 20) continue;
    last = x;
    const words = tick < 60 ? `${tick} s` : tick < 3600 ? `${tick / 60} min` : `${tick / 3600} h`;
    shown.push(svg('line', { x1: x, x2: x, y1: y, y2: y + 4 }), svg('text', { x, y: y + 18, class: 'tick' }, words));
  }
  return shown;
}
