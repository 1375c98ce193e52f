/* The rows as columns: each row has one place in every column, for as long as the page is open. */

/* The columns of an item, in the order of items.py. */
const ITEM_COLUMNS = ['number', 'key', 'state', 'project', 'job_id', 'pr_link', 'error', 'planned_at', 'sent_at', 'created_at', 'seen_at', 'ended_at', 'polls', 'tries', 'prompt'];
const NUMBER_COLUMNS = new Set(['number', 'planned_at', 'sent_at', 'created_at', 'seen_at', 'ended_at', 'polls', 'tries']);
const SEARCHED_COLUMNS = ['key', 'project', 'job_id', 'pr_link', 'error', 'prompt'];
const PREPARED_AT_ONCE = 5000; // rows
const ENDED_JOBS = new Set(['completed', 'failed', 'archived']);

/* Undo _differences of columns.py. */
function sums(column) {
  let last = 0;
  return column.map((less) => (less === null ? null : (last += less)));
}

class Store {
  constructor() {
    this.head = { journal: '', address: '', service: [], made: 0, order: [], commands: {} };
    for (const name of [...ITEM_COLUMNS, 'context']) this[name] = [];
    this.found = []; // what a search looks through, in lower case; null until it is made
    this.places = new Map(); // number -> place
    this.projects = new Set();
    this.hasPrompts = false;
    this.version = 0; // one more with each part
  }

  get size() { return this.places.size; }

  /* Take one line of a document or of an event: what the page knows besides its rows, or a block of rows. */
  apply(part) {
    this.version += 1;
    if ('number' in part) this.applyBlock(part);
    else if ('removed' in part) part.removed.forEach((number) => this.remove(number));
    else {
      // Another journal has other rows: none of them may be taken for one of it.
      if (part.identity !== undefined && part.identity !== this.head.identity) [...this.places.keys()].forEach((number) => this.remove(number));
      this.head = { ...this.head, ...part };
    }
  }

  /* Take a block, as columns.py makes it; a column that it has not stays as it is. */
  applyBlock(block) {
    this.hasPrompts ||= 'prompt' in block;
    const places = sums(block.number).map((number) => this.placeOf(number));
    for (const [name, cells] of Object.entries(block)) {
      const values = NUMBER_COLUMNS.has(name) ? sums(cells) : cells;
      const column = this[name];
      for (let row = 0; row < places.length; row += 1) column[places[row]] = values[row];
    }
    for (const place of places) this.found[place] = null;
    block.project.forEach((project) => this.projects.add(project));
  }

  placeOf(number) {
    let place = this.places.get(number);
    if (place === undefined) {
      place = this.number.length;
      this.number[place] = number;
      this.prompt[place] = this.context[place] = null; // until a block has them
      this.places.set(number, place);
    }
    return place;
  }

  /* A row whose item has a newer try keeps its place, and is no longer found. */
  remove(number) {
    const place = this.places.get(number);
    if (place === undefined) return;
    this.places.delete(number);
    this.state[place] = null;
  }

  /* Make what a search looks through, some rows at a time, so that the page answers meanwhile and the first search is quick. */
  prepareSearch(first = 0) {
    const last = Math.min(first + PREPARED_AT_ONCE, this.number.length);
    for (let place = first; place < last; place += 1) this.textOf(place);
    if (last < this.number.length) setTimeout(() => this.prepareSearch(last));
  }

  textOf(place) {
    this.found[place] ??= SEARCHED_COLUMNS.map((name) => this[name][place] ?? '').join('\n').toLowerCase();
    return this.found[place];
  }

  /* Return the places of the rows that meet a filter, in the order of the journal. */
  select({ text = '', state = '', project = '' }) {
    const wanted = text.trim().toLowerCase();
    const selected = [];
    for (let place = 0; place < this.state.length; place += 1) {
      if (this.state[place] === null) continue;
      if (state !== '' && this.state[place] !== state) continue;
      if (project !== '' && this.project[place] !== project) continue;
      if (wanted !== '' && !this.textOf(place).includes(wanted)) continue;
      selected.push(place);
    }
    return selected;
  }

  /* Return places in the order of their states, and within one in their own: what needs a person comes first. */
  byState(places) {
    const groups = new Map(this.head.order.map((state) => [state, []]));
    for (const place of places) groups.get(this.state[place]).push(place);
    return [...groups.values()].flat();
  }

  /* What is told of a row beside its state: what went wrong, its pull request, or its job. */
  detail(place) { return this.error[place] ?? this.pr_link[place] ?? this.job_id[place] ?? ''; }

  begun(place) { return this.created_at[place] ?? this.sent_at[place]; }

  /* The seconds from create to end; null for what is no job that has ended. */
  duration(place) {
    if (this.state[place] === 'abandoned') return null;
    const [created, ended] = [this.created_at[place], this.ended_at[place]];
    return created === null || ended === null ? null : Math.max(ended - created, 0) / 1000;
  }

  /* When an active job will end, in the server's words for its age; null where that is not known, as in a file. */
  endsIn(place) {
    const { left } = this.head;
    if (!left || this.state[place] !== 'active') return null;
    const step = left.ages.findLastIndex((age) => age <= this.age(place));
    return left.by_project[this.project[place]]?.[step] ?? null;
  }

  /* The seconds that a job has taken so far, for one that is active. */
  age(place) {
    if (this.state[place] !== 'active' || this.created_at[place] === null) return this.duration(place);
    return Math.max(this.head.made - this.created_at[place], 0) / 1000;
  }
}

/* Read the document within the page: lines of JSON, compressed, in base64. */
async function readDocument(text, apply) {
  const packed = atob(text);
  const bytes = new Uint8Array(packed.length);
  for (let index = 0; index < packed.length; index += 1) bytes[index] = packed.charCodeAt(index);
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  for await (const line of linesOf(unpacked)) apply(JSON.parse(line));
}

/* Return the lines of a stream as they come; what follows the last line feed was cut off. */
async function* linesOf(stream, heard = () => {}) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  for (let pending = ''; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    heard();
    const lines = value.split('\n');
    lines[0] = pending + lines[0];
    pending = lines.pop();
    yield* lines;
  }
}
