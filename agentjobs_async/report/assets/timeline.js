/* Active jobs over time, and each job as a bar from its create to its end, in as few lanes as hold them all. */

/* Put bars, which come in the order of their starts, into lanes: each takes the lane that has been free for longest, or opens one. */
function packLanes(bars) {
  const byEnd = [...bars].sort((one, other) => one.end - other.end);
  let [lanes, ended, taken] = [0, 0, 0]; // the lanes of the bars of `byEnd` from `taken` to `ended` are free
  for (const bar of bars) {
    while (byEnd[ended].end <= bar.start && byEnd[ended].lane !== undefined) ended += 1;
    bar.lane = taken < ended ? byEnd[taken++].lane : lanes++;
  }
  return lanes;
}

const LEFT = 40; // room for the numbers of the axis
const TALLEST = 260; // pixels of all lanes

class Timeline {
  constructor(store, open) {
    this.store = store;
    this.bars = [];
    this.range = null; // [from, to] in milliseconds while zoomed in
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
      if (bar) open(bar.place);
    });
    byId('zoom-out').addEventListener('click', () => this.zoom(null));
  }

  show(places) {
    const { store } = this;
    this.bars = [];
    for (const place of places) {
      const start = store.begun(place);
      if (start === null || store.state[place] === 'rejected') continue;
      const open = store.state[place] === 'active' || store.state[place] === 'sending';
      const end = open ? store.head.made : store.ended_at[place] ?? start;
      this.bars.push({ place, start, end: Math.max(end, start) });
    }
    this.bars.sort((one, other) => one.start - other.start);
    this.lanes = packLanes(this.bars);
    this.from = this.bars.length ? this.bars[0].start : 0;
    this.to = this.bars.reduce((most, bar) => (bar.end > most ? bar.end : most), this.from + 1000);
    this.draw();
  }

  zoom(range) {
    this.range = range;
    byId('zoom-out').hidden = range === null;
    this.draw();
  }

  get span() { return this.range ?? [this.from, this.to]; }

  scale(width) {
    const [from, to] = this.span;
    return (time) => LEFT + ((time - from) / (to - from)) * (width - LEFT);
  }

  draw() {
    const height = Math.min(14 * this.lanes, TALLEST);
    this.laneHeight = height / Math.max(this.lanes, 1); // less than a pixel for many lanes: their bars overlap
    this.drawActive();
    this.drawBars(Math.max(height, 24));
    this.showLegend();
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
    const high = Math.max(this.laneHeight - (this.laneHeight > 4 ? 1.5 : 0), 0.5);
    const [from, to] = this.span;
    const colours = Object.fromEntries(this.store.head.order.map((state) => [state, colour(state)]));
    context.beginPath();
    context.rect(LEFT, 0, width - LEFT, height);
    context.clip();
    context.globalAlpha = 0.85; // large areas of one colour are loud
    for (const bar of this.bars) {
      if (bar.end < from || bar.start > to) continue;
      const x = scale(bar.start);
      context.fillStyle = colours[this.store.state[bar.place]];
      context.fillRect(x, bar.lane * this.laneHeight, Math.max(scale(bar.end) - x - 0.5, 1.2), high);
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
      context.fillText('no job has been created yet', width / 2, height / 2);
      return;
    }
    const levels = this.levels(width);
    const most = Math.max(levels.reduce((high, level) => Math.max(high, level), 0), 1);
    const y = (level) => height - bottom - (level / most) * (height - top - bottom);
    this.drawAxes(context, width, height - bottom, most, y);
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

  drawAxes(context, width, bottom, most, y) {
    context.strokeStyle = colour('line');
    context.textAlign = 'right';
    for (const level of new Set([0, Math.round(most / 2), most])) {
      context.fillText(grouped(level), LEFT - 6, y(level) + 4);
      context.beginPath();
      context.moveTo(LEFT, Math.round(y(level)) + 0.5);
      context.lineTo(width, Math.round(y(level)) + 0.5);
      context.stroke();
    }
    const [from, to] = this.span;
    const step = stepOf((to - from) / 1000, Math.max(Math.floor(width / 110), 2)) * 1000;
    const cut = step >= 86_400_000 ? [5, 10] : step >= 60_000 ? [11, 16] : [11, 19];
    const scale = this.scale(width);
    context.textAlign = 'center';
    for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
      const x = scale(time);
      if (x > LEFT + 16 && x < width - 24) context.fillText(isoTime(time).slice(...cut), x, bottom + 16);
    }
  }

  showLegend() {
    const present = new Set(this.bars.map((bar) => this.store.state[bar.place]));
    update(byId('legend'), element('ul', {}, ...this.store.head.order.filter((state) => present.has(state)).map(
      (state) => element('li', {}, element('span', { className: `swatch state-${state}` }), state),
    )));
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
    this.tip.textContent = `${visible(store.key[bar.place]).slice(0, 60)} · ${store.state[bar.place]} · ${spanText((bar.end - bar.start) / 1000)}`;
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
