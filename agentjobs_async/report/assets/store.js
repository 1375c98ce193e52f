/* The rows as columns: each row has the same index in every column, for as long as the page is open. */

/* The columns of an item, in the order of items.py. */
const ITEM_COLUMNS = ['number', 'key', 'state', 'project', 'job_id', 'pr_link', 'pull_request', 'reason', 'error', 'planned_at', 'sent_at', 'created_at', 'seen_at', 'ended_at', 'polls', 'tries', 'prompt'];
/* What some rows have besides, each an object of columns, in the order in which a table has them. */
const FIELD_COLUMNS = ['context', 'extra'];
const LOOK = 'look'; // where to look for the job of an unknown item
const NUMBER_COLUMNS = new Set(['number', 'planned_at', 'sent_at', 'created_at', 'seen_at', 'ended_at', 'polls', 'tries']);
const SEARCHED_COLUMNS = ['state', 'key', 'project', 'job_id', 'pr_link', 'pull_request', 'error', 'prompt']; // what a row shows
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
    for (const name of [...ITEM_COLUMNS, ...FIELD_COLUMNS, LOOK]) this[name] = [];
    this.found = []; // what a search looks through, in lower case; null until it is made
    this.indexes = new Map(); // number -> index
    this.projects = new Set();
    this.hasPrompts = false;
    this.version = 0; // one more with each part
  }

  get size() { return this.indexes.size; }

  /* Apply one line of a document or of an event: what the page knows besides its rows, or a block of rows. */
  apply(part) {
    this.version += 1;
    if ('number' in part) this.applyBlock(part);
    else if ('removed' in part) part.removed.forEach((number) => this.remove(number));
    else {
      // Another journal has other rows: none of them may pass for one of it.
      if (part.identity !== undefined && part.identity !== this.head.identity) [...this.indexes.keys()].forEach((number) => this.remove(number));
      this.head = { ...this.head, ...part };
    }
  }

  /* Apply a block, as columns.py makes it; a column that it has not stays as it is. */
  applyBlock(block) {
    this.hasPrompts ||= 'prompt' in block;
    const indexes = sums(block.number).map((number) => this.indexOf(number));
    for (const [name, cells] of Object.entries(block)) {
      const values = NUMBER_COLUMNS.has(name) ? sums(cells) : cells;
      const column = this[name];
      for (let row = 0; row < indexes.length; row += 1) column[indexes[row]] = values[row];
    }
    for (const index of indexes) this.found[index] = null;
    block.project.forEach((project) => this.projects.add(project));
  }

  indexOf(number) {
    let index = this.indexes.get(number);
    if (index === undefined) {
      index = this.number.length;
      this.number[index] = number;
      for (const name of ['prompt', ...FIELD_COLUMNS, LOOK]) this[name][index] = null; // until a block has them
      this.indexes.set(number, index);
    }
    return index;
  }

  /* A row that the journal does not have any more keeps its index, and is no longer found. */
  remove(number) {
    const index = this.indexes.get(number);
    if (index === undefined) return;
    this.indexes.delete(number);
    this.state[index] = null;
  }

  /* Make what a search looks through, some rows at a time, so that the page answers meanwhile and the first search is quick. */
  prepareSearch(first = 0) {
    const last = Math.min(first + PREPARED_AT_ONCE, this.number.length);
    for (let index = first; index < last; index += 1) this.textOf(index);
    if (last < this.number.length) setTimeout(() => this.prepareSearch(last));
  }

  textOf(index) {
    this.found[index] ??= SEARCHED_COLUMNS.map((name) => this[name][index] ?? '').join('\n').toLowerCase();
    return this.found[index];
  }

  /* Return the indexes of the rows that meet a filter, in the order of the journal. */
  select({ text = '', state = '', project = '', reason = '' }) {
    const wanted = text.trim().toLowerCase();
    const selected = [];
    for (let index = 0; index < this.state.length; index += 1) {
      if (this.state[index] === null) continue;
      if (state !== '' && this.state[index] !== state) continue;
      if (project !== '' && this.project[index] !== project) continue;
      if (reason !== '' && this.reason[index] !== reason) continue;
      if (wanted !== '' && !this.textOf(index).includes(wanted)) continue;
      selected.push(index);
    }
    return selected;
  }

  /* Return indexes in the order of the rows' states, and within one in their own: what needs a person comes first. */
  byState(indexes) {
    const groups = new Map(this.head.order.map((state) => [state, []]));
    for (const index of indexes) groups.get(this.state[index]).push(index);
    return [...groups.values()].flat();
  }

  /* What went wrong with a row, as far as its reason does not say it already where it is chosen; else null. */
  fault(index, chosen) {
    const [error, reason] = [this.error[index], this.reason[index]];
    if (error === null || (error === reason && this.job_id[index] !== null)) return null;
    const rest = chosen === '' || !error.startsWith(reason) ? error : error.slice(reason.length).replace(/^:\s*/, '');
    return rest === '' ? null : rest;
  }

  /* What is shown of a row beside its state: what went wrong, its pull request, or its job. */
  detail(index, chosen = '') { return this.fault(index, chosen) ?? this.pull_request[index] ?? this.job_id[index] ?? ''; }

  begun(index) { return this.created_at[index] ?? this.sent_at[index]; }

  /* The seconds from create to end; null for what is no job that has ended. */
  duration(index) {
    if (this.state[index] === 'abandoned') return null;
    const [created, ended] = [this.created_at[index], this.ended_at[index]];
    return created === null || ended === null ? null : Math.max(ended - created, 0) / 1000;
  }

  /* When an active job will end, in the server's words for its age; null where that is not known, as in a file. */
  endsIn(index) {
    const { left } = this.head;
    if (!left || this.state[index] !== 'active') return null;
    const step = left.ages.findLastIndex((age) => age <= this.age(index));
    return left.by_project[this.project[index]]?.[step] ?? null;
  }

  /* The seconds that a job has taken so far, for one that is active. */
  age(index) {
    if (this.state[index] !== 'active' || this.created_at[index] === null) return this.duration(index);
    return Math.max(this.head.made - this.created_at[index], 0) / 1000;
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
