/* Elements, texts and times. Every text of the journal enters the page as a text node or an attribute's value. */

// As ACTING in texts.py: what a browser or a terminal would act on, or could not show.
const ACTING = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\uffff\u{e0000}-\u{e007f}]/gu;

const NONE = '-'; // what is not known, or has not come

const byId = (id) => document.getElementById(id);

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made && typeof value !== 'string') made[key] = value;
    else if (value !== null && value !== undefined) made.setAttribute(key === 'className' ? 'class' : key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/* Make what is in `old` equal to what is in `wanted`. Elements stay, with their listeners, their focus and what is selected in
   them; so does a tile that comes behind a new one. */
function update(old, wanted) {
  const nodes = [...wanted.childNodes]; // one that is moved to `old` leaves `wanted`
  nodes.forEach((node, index) => {
    const present = old.childNodes[index];
    if (present?.dataset?.tile !== node.dataset?.tile || present === undefined) old.insertBefore(node, present ?? null);
    else if (present.nodeName !== node.nodeName) present.replaceWith(node);
    else renew(present, node);
  });
  while (old.childNodes.length > nodes.length) old.lastChild.remove();
}

/* Make a node equal to another one of its name. */
function renew(present, node) {
  if (present.isEqualNode(node)) return;
  if (node.nodeType === Node.TEXT_NODE) present.nodeValue = node.nodeValue;
  else {
    for (const { name } of [...present.attributes]) if (!node.hasAttribute(name)) present.removeAttribute(name);
    for (const { name, value } of node.attributes) present.setAttribute(name, value);
    update(present, node);
  }
}

function visible(text) {
  return text.replace(ACTING, (found) => {
    const code = found.codePointAt(0);
    return code > 0xffff ? `\\U${code.toString(16).padStart(8, '0')}` : `\\u${code.toString(16).padStart(4, '0')}`;
  });
}

/* Return the beginning of a text, on one line. */
const beginning = (text) => visible(text.slice(0, 300).replace(/\s+/g, ' '));

/* Return a link to a pull request, in the words for it; null where it is none. The server of the journal checked it, and so does
   this page: a script in a link would run in it. */
function linkTo(link, words) {
  if (link === null || !/^https?:\/\//i.test(link)) return null;
  return element('a', { href: link, rel: 'noopener noreferrer nofollow', target: '_blank', title: link }, words ?? link);
}

/* Return a key; one that is a path is cut in its middle where there is no room for it: its last part tells it from others. */
function keyParts(key) {
  const shown = visible(key);
  const slash = shown.lastIndexOf('/', shown.length - 2);
  if (slash < 1) return element('span', { className: 'whole', title: shown }, shown);
  const parts = [shown.slice(0, slash + 1), shown.slice(slash + 1)].map((part) => element('span', {}, part));
  return element('span', { className: 'path', title: shown }, ...parts);
}

/* Return a path as texts between which a line may end. */
const breakable = (path) => path.split(/(?<=\/)/).flatMap((part, index) => (index ? [element('wbr'), part] : [part]));

/* Return a command whose lines end at its spaces only. */
function codeOf(line) {
  const words = line.split(' ').flatMap((word, index) => [index ? ' ' : '', element('span', { className: 'word' }, word)]);
  return element('code', { tabindex: '0' }, ...words.filter((part) => part !== ''));
}

/* As decimal in texts.py: a half is rounded up. */
function decimal(value, digits) {
  const rounded = Math.floor(value * 10 ** digits + 0.5) / 10 ** digits;
  return rounded.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

function decimalPlaces(seconds) {
  if (seconds < 1) return 2;
  return seconds < 10 ? 1 : 0;
}

/* As span_text in texts.py. */
function spanText(seconds) {
  if (seconds === null) return NONE;
  const whole = Math.floor(seconds + 0.5);
  if (whole < 60) return `${Number(decimal(seconds, decimalPlaces(seconds)))}\u00a0s`;
  const [minutes, hours] = [Math.floor(whole / 60), Math.floor(whole / 3600)];
  if (!hours) return `${minutes}\u00a0min${whole % 60 ? ` ${whole % 60}\u00a0s` : ''}`;
  return `${hours}\u00a0h${minutes % 60 ? ` ${String(minutes % 60).padStart(2, '0')}\u00a0min` : ''}`;
}

const isoTime = (time) => new Date(time).toISOString();
const fullTime = (time) => (time === null ? NONE : `${isoTime(time).slice(0, 19).replace('T', ' ')} UTC`);

/* Return how long ago a time was, as people say it, with the time itself as its title. */
function timeAgo(time, now) {
  if (time === null) return NONE;
  return element('time', { datetime: isoTime(time), title: fullTime(time) }, agoText((now - time) / 1000));
}

const UNITS = [ // in seconds: the size of each, and from which time on it is used
  { unit: 'd', size: 86_400, from: 172_800 }, // 30 h say more than 1 d
  { unit: 'h', size: 3600, from: 3600 },
  { unit: 'min', size: 60, from: 60 },
  { unit: 's', size: 1, from: 0 },
];

function agoText(seconds) {
  if (seconds < 5) return 'now';
  const { unit, size } = UNITS.find(({ from }) => seconds >= from);
  return `${Math.floor(seconds / size)}\u00a0${unit} ago`;
}

const grouped = (number) => number.toLocaleString('en-US');

// The token of a job, as JobRef.to_token in Python gives it.
function jobToken(...ids) {
  const escaped = (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`;
  return ids.map((id) => encodeURIComponent(id).replace(/[!'()*~]/g, escaped).replaceAll('%', '~')).join('~.');
}

// The words of a command as a shell reads them; as _quoted in commands.py.
function shellWord(word) {
  if (word.search(ACTING) >= 0) {
    const escape = (found) => {
      const code = found.codePointAt(0);
      if (code >= 0xdc80 && code <= 0xdcff) return `\\x${(code - 0xdc00).toString(16)}`; // a byte that is not UTF-8
      return `\\U${code.toString(16).padStart(8, '0')}`;
    };
    return `$'${word.replace(/\\/g, '\\\\').replace(/'/g, "\\'").replace(/[^ -~]/gu, escape)}'`;
  }
  if (/^[\w@%+=:,./-]+$/.test(word)) return word;
  return `'${word.replace(/'/g, `'"'"'`)}'`;
}

function commandLine(words, values) {
  const filled = words.flatMap((word) => values[word] ?? word);
  const last = filled.length - 1;
  // A key that begins with a dash would be read as an option.
  if (words[last] === '{key}' && filled[last].startsWith('-')) filled.splice(last, 0, '--');
  return filled.map(shellWord).join(' ');
}

// A spreadsheet would run a cell that begins with one of these as a formula, but for a number.
const csvCell = (value) => {
  const text = value === null ? '' : String(value);
  const inert = /^[=+\-@\t\r\n]/.test(text) && !/^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(inert) ? `"${inert.replace(/"/g, '""')}"` : inert;
};

function download(name, text, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = element('a', { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
