/* The live page: the rows come from the server that serves it, and then, as server-sent events, what changes. */

const PAUSES = [500, 1000, 2000, 5000, 10_000]; // ms between tries to reach the server, the last one for ever
const SILENT = 35_000; // ms; the server sends something every 15 s, so that a longer silence is a broken connection
const CLICK_DELAY = 50; // ms after a button is up in which its click comes
const OLDEST = 20_000; // ms after which a page in which nothing changes is drawn anew
const SLOWEST = 250; // ms between two redraws at least; with many rows, redrawing takes at most a quarter of the time

class Live {
  constructor(shown) {
    this.report = shown;
    this.token = tokenOf(location);
    this.position = null; // the id of the last event; null before there is a document
    this.skew = 0; // ms by which the server's clock is ahead of this one
    this.workers = null;
    this.delayedUntil = 0; // by a button that is down: a redraw would move what is about to be clicked
    this.badge = element('span', { id: 'live', role: 'status' }, 'loading');
    byId('theme').before(this.badge);
    this.crew = element('section', { className: 'card workers', id: 'workers', 'aria-label': 'Workers', hidden: true });
    byId('charts').append(this.crew);
    addEventListener('online', () => this.wake());
    addEventListener('pointerdown', () => { this.delayedUntil = Infinity; }, true);
    for (const name of ['pointermove', 'pointerup', 'pointercancel']) addEventListener(name, ({ buttons }) => {
      if (!buttons) this.delayedUntil = Math.min(this.delayedUntil, performance.now() + CLICK_DELAY);
    }, true);
    document.addEventListener('visibilitychange', () => {
      if (document.hidden) return;
      this.check();
      if (this.isStale) this.redraw();
    });
    setInterval(() => this.tick(), 1000);
    this.run();
  }

  /* Get what the server sends for as long as the page is open. */
  async run() {
    for (let failures = 0; ; failures += 1) {
      let words = 'reconnecting …';
      try {
        if (this.position === null) await this.load();
        await this.listen(() => { failures = 0; });
      } catch (error) {
        if (error instanceof Refused) {
          this.show('refused', error.message);
          return;
        }
        if (error instanceof Unavailable) words = visible(error.message);
      }
      this.show('lost', words);
      await this.pause(PAUSES[Math.min(failures, PAUSES.length - 1)]);
    }
  }

  async ask(address, options = {}) {
    this.stop = new AbortController();
    this.heard = Date.now();
    const headers = { ...options.headers };
    if (this.token !== null) headers.Authorization = `Bearer ${this.token}`;
    const response = await fetch(address, { ...options, headers, cache: 'no-store', signal: this.stop.signal });
    if (response.status === 401 || response.status === 403) throw new Refused(await response.text());
    if (!response.ok) throw new Unavailable(await response.text());
    return response;
  }

  /* Get all rows, and show them as they come. What the page has and the server has not is gone: an earlier try of an item. */
  async load() {
    const response = await this.ask('rows');
    const skew = Date.parse(response.headers.get('Date')) - Date.now();
    this.skew = Math.abs(skew) > 2000 ? skew : 0; // the header has whole seconds
    const numbers = new Set();
    let position = null;
    for await (const line of this.lines(response)) {
      const part = JSON.parse(line);
      this.report.apply(part);
      position = part.position ?? position;
      if (!('number' in part)) continue;
      for (const number of sums(part.number)) numbers.add(number);
      this.redrawSoon();
      this.show('loading', `loading, ${grouped(numbers.size)} so far`);
    }
    if (position === null) throw new Error('the server could not read all rows');
    const { store } = this.report;
    const removed = [...store.indexes.keys()].filter((number) => !numbers.has(number));
    if (removed.length) this.report.apply({ removed });
    this.position = position;
    document.title = `${store.head.journal} · agentjobs`;
    update(document.querySelector('h1'), element('h1', {}, ...store.head.journal.split(/(?<=\/)/).map((part) => element('span', {}, part))));
    this.redraw();
    if (!this.isStale) this.report.drawCharts(); // at once, as in a file
    document.documentElement.dataset.ready = 'true';
    store.prepareSearch();
  }

  /* Read the stream to its end. It is read by `fetch`, which can send a token where EventSource can't. */
  async listen(opened) {
    const response = await this.ask('events', { headers: { 'Last-Event-ID': this.position } });
    opened();
    let fields = {};
    for await (const line of this.lines(response)) {
      const found = /^(id|event|data): (.*?)\r?$/.exec(line);
      if (found) fields[found[1]] = found[2];
      else if (line === '' || line === '\r') {
        this.receive(fields);
        fields = {};
      }
    }
  }

  lines(response) { return linesOf(response.body, () => { this.heard = Date.now(); }); }

  receive(fields) {
    if (fields.event === 'stale') this.position = null;
    else if (fields.event === 'status') this.applyStatus(JSON.parse(fields.data));
    else if (fields.data) {
      this.report.apply(JSON.parse(fields.data));
      this.position = fields.id;
      this.redrawSoon();
    }
  }

  /* Apply what has changed besides the rows: all of it as a stream begins, before the page calls itself live. */
  applyStatus({ workers, trouble, late, ...head }) {
    if (workers !== undefined) this.workers = workers;
    if (late !== undefined) {
      byId('late').hidden = !late.length;
      byId('late-tries').replaceChildren(...late.map((line) => element('li', {}, visible(line))));
    }
    if (Object.keys(head).length) {
      this.report.apply(head);
      if (this.badge.dataset.state === 'on') this.redrawSoon();
      else this.redraw(); // at once: drawn later, it would move rows that somebody is about to click
    }
    if (trouble === null) this.show('on', 'connected');
    else if (trouble !== undefined) this.show('lost', visible(trouble));
  }

  get isDelayed() { return performance.now() < this.delayedUntil; }

  redrawSoon() {
    this.drawing ??= setTimeout(() => this.redraw(), Math.max(SLOWEST, 3 * (this.redrawMs ?? 0)) - (performance.now() - (this.drawn ?? -1e9)));
  }

  redraw() {
    clearTimeout(this.drawing);
    this.drawing = null;
    this.isStale = document.hidden && document.documentElement.dataset.ready === 'true';
    if (this.isStale) return; // nobody sees it
    if (this.isDelayed) {
      this.drawing = setTimeout(() => this.redraw(), SLOWEST);
      return;
    }
    const started = performance.now();
    this.report.apply({ made: Date.now() + this.skew });
    this.showNewestRow();
    this.report.refresh();
    this.showWorkers();
    this.drawn = performance.now();
    this.redrawMs = this.drawn - started;
  }

  /* Show the newest row of the key whose panel is open: another journal may have come. */
  showNewestRow() {
    const { store, panel } = this.report;
    if (!panel.isOpen || store.state[panel.index] !== null) return;
    const next = store.key.lastIndexOf(store.key[panel.index]);
    if (store.state[next] === null) panel.close();
    else this.report.open(next);
  }

  /* Each second: the time runs on, and a connection that is silent is given up, as after the sleep of a laptop. */
  tick() {
    this.check();
    if (document.hidden || this.isDelayed || document.documentElement.dataset.ready !== 'true') return;
    byId('made').textContent = fullTime(Date.now() + this.skew);
    this.showWorkers();
    if (performance.now() - this.drawn > OLDEST) this.redrawSoon(); // times are relative to now
  }

  check() {
    if (Date.now() - this.heard > SILENT) {
      this.stop.abort();
      this.wake();
    }
  }

  async pause(milliseconds) {
    await new Promise((done) => {
      this.wake = done;
      setTimeout(done, milliseconds);
    });
  }

  wake() {} // until the first pause

  show(state, words) {
    this.badge.dataset.state = state;
    this.badge.textContent = words;
  }

  showWorkers() {
    const { workers } = this;
    this.crew.hidden = workers === null;
    if (workers === null) return;
    const now = Date.now() + this.skew;
    const lines = workers.map(({ name, active, heard, dead }) => element('li', { className: dead ? 'dead' : '' },
      element('span', { className: 'name' }, visible(name)),
      element('span', {}, `${grouped(active)} active`),
      element('span', {}, `heartbeat ${spanText(Math.max(Math.round((now - heard) / 1000), 0))} ago${dead ? ', counts as dead' : ''}`)));
    const title = workers.length ? `${workers.length} worker${workers.length === 1 ? '' : 's'}` : 'No worker has the journal open';
    update(this.crew, element('section', {}, element('h2', {}, title), element('ul', {}, ...lines)));
  }
}

class Refused extends Error {} // for ever
class Unavailable extends Error {} // for now, in the server's words

/* The token comes behind the #, which no browser sends; it stays in this tab, and leaves the address. */
function tokenOf(address) {
  const found = /^#token=(.+)$/.exec(address.hash);
  try {
    if (found) {
      sessionStorage.setItem('agentjobs-token', decodeURIComponent(found[1]));
      history.replaceState(null, '', address.pathname + address.search);
    }
    return sessionStorage.getItem('agentjobs-token');
  } catch {
    return found ? decodeURIComponent(found[1]) : null; // a browser that stores nothing
  }
}

const live = new Live(report);
