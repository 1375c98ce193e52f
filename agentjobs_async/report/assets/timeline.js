/* Active jobs over time, and each job as a bar from its create to its end, in as few lanes as hold them all. */

/* Put bars, which come in the order of their starts, into lanes: each gets the lane that has been free for longest, or opens one. */
function packLanes(bars) {
  for (const bar of bars) bar.lane = undefined;
  const byEnd = [...bars].sort((one, other) => one.end - other.end);
  let [lanes, ended, reused] = [0, 0, 0]; // the lanes of the bars of `byEnd` from `reused` to `ended` are free
  for (const bar of bars) {
    while (byEnd[ended].end <= bar.start && byEnd[ended].lane !== undefined) ended += 1;
    bar.lane = reused < ended ? byEnd[reused++].lane : lanes++;
  }
  return lanes;
}

/* Return the span of nearly all starts and ends if the whole one is over ten times as long, else null: a batch of an hour is shown
   as that hour, even if one job ended weeks later. */
function busySpan(times) {
  const sorted = Float64Array.from(times).sort();
  const end = sorted.length - 1;
  const reach = end - Math.max(Math.floor(sorted.length / 20), 1); // from the first to the last of nearly all
  let first = 0;
  for (let index = 1; index + reach <= end; index += 1) {
    if (sorted[index + reach] - sorted[index] < sorted[first + reach] - sorted[first]) first = index;
  }
  let last = first + reach;
  const near = (sorted[last] - sorted[first]) / 10;
  while (first > 0 && sorted[first] - sorted[first - 1] <= near) first -= 1;
  while (last < end && sorted[last + 1] - sorted[last] <= near) last += 1;
  const [busy, whole] = [Math.max(sorted[last] - sorted[first], 1000), sorted[end] - sorted[0]];
  if (sorted.length < FEWEST_TIMES || whole <= 10 * busy) return null;
  const edge = busy / 50; // shows that bars go on
  return [sorted[first] - edge, sorted[first] + busy + edge];
}

const FEWEST_TIMES = 6; // of three jobs: with fewer, none is an exception
const LEFT = 50; // room for the numbers of the axis
const TALLEST = 260; // pixels of all lanes
const DAY = 86_400_000;
const UNSEEN = 3_600_000; // ms since an active job was seen: longer than a sensible wait between polls, or an outage

class Timeline {
  constructor(store, open) {
    this.store = store;
    this.all = []; // of what is shown, in the order of their starts
    this.bars = []; // those within the span
    this.range = null; // what is chosen: [from, to] in milliseconds, or 'whole'
    this.canvas = byId('timeline');
    this.active = byId('active');
    this.tip = byId('tip');
    this.canvas.addEventListener('pointermove', (event) => this.hover(event));
    this.canvas.addEventListener('pointerleave', () => { this.tip.hidden = true; });
    for (const plot of [this.canvas, this.active]) {
      plot.addEventListener('pointerdown', (event) => this.drag(event, plot));
      plot.addEventListener('pointerup', (event) => this.drop(event, plot));
      plot.addEventListener('lostpointercapture', () => { this.begun = null; }); // after the drag's end, or without one
    }
    this.canvas.addEventListener('click', (event) => {
      const bar = this.dragged ? null : this.barAt(event);
      if (bar) open(bar.index);
    });
    byId('zoom-out').addEventListener('click', () => this.zoom(this.range === null ? 'whole' : null));
  }

  show(indexes) {
    const { store } = this;
    const bars = [];
    for (const index of indexes) {
      const start = store.begun(index);
      if (start === null || store.state[index] === 'rejected') continue;
      bars.push({ index, start, end: Math.max(this.endOf(index) ?? start, start) });
    }
    this.all = bars.sort((one, other) => one.start - other.start);
    this.words = jobWords(store, indexes);
    this.whole = bars.length ? [bars[0].start, bars.reduce((most, bar) => Math.max(most, bar.end), bars[0].start + 1000)] : [0, 1000];
    this.busy = (bars.length ? busySpan(bars.flatMap((bar) => [bar.start, bar.end])) : null) ?? this.whole;
    this.draw();
  }

  /* Until when a job was active, as far as that is known: a job that nobody polls may have ended long ago. */
  endOf(index) {
    const { store } = this;
    const seen = store.seen_at[index] ?? store.begun(index);
    const isOpen = store.state[index] === 'active' || store.state[index] === 'sending';
    return isOpen && store.head.made - seen <= UNSEEN ? store.head.made : store.ended_at[index] ?? store.seen_at[index];
  }

  zoom(range) {
    this.range = range;
    this.draw();
  }

  get span() { return this.range === 'whole' ? this.whole : this.range ?? this.busy; }

  spanWords() {
    const [from, to] = this.span.map((time) => fullTime(time).slice(0, this.span[1] - this.span[0] < 600_000 ? 19 : 16));
    return `${from} to ${to.slice(0, 10) === from.slice(0, 10) ? to.slice(11) : to}`;
  }

  scale(width) {
    const [from, to] = this.span;
    return (time) => LEFT + ((time - from) / (to - from)) * (width - LEFT);
  }

  draw() {
    const [from, to] = this.span;
    this.bars = this.all.filter((bar) => bar.end >= from && bar.start <= to);
    const lanes = packLanes(this.bars);
    const height = Math.min(14 * lanes, TALLEST);
    this.laneHeight = height / Math.max(lanes, 1); // less than a pixel for many lanes: their bars overlap
    this.drawActive();
    this.drawBars(Math.max(height, 24));
    this.showLegend();
    byId('time-hint').textContent = this.bars.length ? `${this.spanWords()} UTC; drag to zoom, click a job to open it` : '';
    const isAll = this.busy === this.whole;
    byId('zoom-out').hidden = this.range === null && isAll;
    byId('zoom-out').textContent = this.range === null || isAll ? 'Whole span' : 'Busy span';
  }

  context(canvas, height) {
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.parentElement.clientWidth;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    const context = canvas.getContext('2d');
    context.scale(ratio, ratio);
    context.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    return [context, width];
  }

  drawBars(height) {
    const [context, width] = this.context(this.canvas, height);
    const scale = this.scale(width);
    const high = Math.max(this.laneHeight - (this.laneHeight > 4 ? 1.5 : 0), 1);
    const colours = Object.fromEntries(this.store.head.order.map((state) => [state, colour(state)]));
    context.beginPath();
    context.rect(LEFT, 0, width - LEFT, height);
    context.clip();
    this.hatch(context, width, 0, height);
    context.globalAlpha = 0.85; // large areas of one colour are loud
    for (const bar of this.bars) {
      const x = scale(bar.start);
      context.fillStyle = colours[this.store.state[bar.index]];
      context.fillRect(x, Math.round(bar.lane * this.laneHeight), Math.max(scale(bar.end) - x - 0.5, 1.2), high);
    }
  }

  /* The number of active jobs, at most one point for each pixel: its maximum there. */
  levels(width) {
    const [from, to] = this.span;
    const levels = new Float64Array(Math.max(Math.floor(width - LEFT), 1));
    const ends = Float64Array.from(this.bars, (bar) => bar.end).sort();
    const columnOf = (time) => Math.min(Math.floor(((time - from) / (to - from)) * levels.length), levels.length);
    let [active, ended, drawn] = [0, 0, 0];
    const fill = (until) => {
      if (until < 0) return; // before what is shown
      for (; drawn < until; drawn += 1) levels[drawn] = Math.max(levels[drawn], active);
      if (drawn < levels.length) levels[drawn] = Math.max(levels[drawn], active);
    };
    for (const bar of this.bars) {
      for (; ended < ends.length && ends[ended] <= bar.start; ended += 1) {
        fill(columnOf(ends[ended]));
        active -= 1;
      }
      fill(columnOf(bar.start));
      active += 1;
    }
    for (; ended < ends.length; ended += 1) {
      fill(columnOf(ends[ended]));
      active -= 1;
    }
    fill(levels.length);
    return levels;
  }

  drawActive() {
    const height = 132;
    const [top, bottom] = [8, 22];
    const [context, width] = this.context(this.active, height);
    context.fillStyle = colour('muted');
    if (!this.bars.length) {
      context.textAlign = 'center';
      context.fillText(`${this.words} ${this.all.length ? 'in this span' : 'has been created'}`, width / 2, height / 2);
      return;
    }
    const levels = this.levels(width);
    const most = Math.max(levels.reduce((high, level) => Math.max(high, level), 0), 1);
    const counts = roundCounts(most);
    const y = (level) => height - bottom - (level / counts.at(-1)) * (height - top - bottom);
    this.drawAxes(context, width, height - bottom, counts, y);
    this.hatch(context, width, top, height - bottom);
    context.beginPath();
    context.moveTo(LEFT, y(0));
    levels.forEach((level, index) => {
      context.lineTo(LEFT + index, y(level));
      context.lineTo(LEFT + index + 1, y(level));
    });
    context.lineTo(width, y(0));
    context.globalAlpha = 0.18;
    context.fillStyle = colour('accent');
    context.fill();
    context.globalAlpha = 1;
    context.strokeStyle = colour('accent');
    context.lineWidth = 1.5;
    context.stroke();
  }

  /* The spans of this chart in which jobs were active and nobody saw them, as unseen.py finds them. */
  get unseen() {
    const [from, to] = this.span;
    return (this.store.head.figures?.unseen ?? []).filter(([start, end]) => end > from && start < to);
  }

  /* Hatch these spans between two heights of a canvas. */
  hatch(context, width, top, bottom) {
    const { unseen } = this;
    if (!unseen.length) return;
    const scale = this.scale(width);
    context.save();
    context.beginPath();
    for (const [start, end] of unseen) {
      const left = Math.max(scale(start), LEFT);
      context.rect(left, top, Math.max(Math.min(scale(end), width) - left, 2), bottom - top);
    }
    context.clip();
    context.strokeStyle = colour('muted');
    context.globalAlpha = 0.45;
    context.lineWidth = 1;
    context.beginPath();
    for (let x = LEFT - bottom; x < width; x += 7) {
      context.moveTo(x, bottom);
      context.lineTo(x + bottom - top, top);
    }
    context.stroke();
    context.restore();
  }

  drawAxes(context, width, bottom, counts, y) {
    context.strokeStyle = colour('line');
    context.textAlign = 'right';
    for (const level of counts) {
      context.fillText(grouped(level), LEFT - 6, y(level) + 4);
      context.beginPath();
      context.moveTo(LEFT, Math.round(y(level)) + 0.5);
      context.lineTo(width, Math.round(y(level)) + 0.5);
      context.stroke();
    }
    const [from, to] = this.span;
    const step = stepOf((to - from) / 1000, Math.max(Math.floor(width / 80), 2)) * 1000;
    const cut = step >= 60_000 ? [11, 16] : step >= 1000 ? [11, 19] : [11, 23];
    const scale = this.scale(width);
    context.fillText('UTC', LEFT - 6, bottom + 16);
    context.textAlign = 'center';
    for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
      const x = scale(time);
      if (x > LEFT + 32 && x < width - 24) context.fillText(isoTime(time).slice(...(time % DAY ? cut : [5, 10])), x, bottom + 16);
    }
  }

  showLegend() {
    const present = new Set(this.bars.map((bar) => this.store.state[bar.index]));
    const states = this.store.head.order.filter((state) => present.has(state));
    const items = states.map((state) => element('li', {}, element('span', { className: `swatch state-${state}` }), state));
    if (this.bars.length && this.unseen.length) {
      items.push(element('li', {}, element('span', { className: 'swatch unseen' }), 'nobody looked at the jobs'));
    }
    update(byId('legend'), element('ul', {}, ...items));
  }

  timeAt(event, plot) {
    const { left, width } = plot.getBoundingClientRect();
    const [from, to] = this.span;
    return from + Math.min(Math.max((event.clientX - left - LEFT) / (width - LEFT), 0), 1) * (to - from);
  }

  barAt(event) {
    const { top, left } = this.canvas.getBoundingClientRect();
    const [time, [from, to]] = [this.timeAt(event, this.canvas), this.span];
    const slack = ((to - from) / this.canvas.clientWidth) * 2; // 2 pixels: a short job is hit, too
    const isHit = (bar) => {
      const below = event.clientY - top - bar.lane * this.laneHeight;
      return below >= 0 && below < Math.max(this.laneHeight, 1) && bar.start - slack <= time && time <= bar.end + slack;
    };
    return event.clientX < left + LEFT ? undefined : this.bars.findLast(isHit); // of those that overlap, the one on top
  }

  hover(event) {
    const bar = this.barAt(event);
    this.tip.hidden = !bar;
    this.canvas.style.cursor = bar ? 'pointer' : 'crosshair';
    if (!bar) return;
    const { store } = this;
    this.tip.textContent = `${visible(store.key[bar.index])} · ${store.state[bar.index]} · ${spanText((bar.end - bar.start) / 1000)}`;
    const { left, top, width } = this.canvas.parentElement.getBoundingClientRect();
    this.tip.style.left = `${Math.min(event.clientX - left + 12, width - this.tip.offsetWidth - 4)}px`;
    this.tip.style.top = `${event.clientY - top + 16}px`;
  }

  drag(event, plot) {
    plot.setPointerCapture(event.pointerId); // its end comes here, wherever the pointer is by then
    this.begun = { x: event.clientX, time: this.timeAt(event, plot) };
    this.dragged = false;
  }

  drop(event, plot) {
    if (!this.begun) return; // the button went down elsewhere
    this.dragged = Math.abs(event.clientX - this.begun.x) > 6;
    const [from, to] = [this.begun.time, this.timeAt(event, plot)].sort((one, other) => one - other);
    if (this.dragged && to - from > 10) this.zoom([from, to]);
  }
}
