/* The head grid: a map (click picks a head) or a board of switches (click toggles it).
   The markup is built once per shape; every later call only repaints. Text is set as text, never as markup. */

const make = (tag, props = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name === 'class') node.className = value;
    else if (name === 'text') node.textContent = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
};

class HeadGrid {
  constructor(parent) {
    this.root = make('div', { class: 'grid-wrap' });
    parent.appendChild(this.root);
    this.off = new Set();
    this.focus = 0;
    this.last = null;
    presses.listen(this.root, (button, range) => this.click(button, range));
    for (const kind of ['keydown', 'pointerover', 'pointerleave', 'focusin', 'focusout']) {
      this.root.addEventListener(kind, (event) => this[kind](event));
    }
  }

  update({ data, setTriggerValue }) {
    Object.assign(this, { data, setTriggerValue });
    presses.acknowledge(data);
    this.switches = data.mode === 'switch';
    this.follow();
    if (!this.switches && this.selected >= 0 && this.selected !== this.before) this.focus = this.selected;
    this.before = this.selected;
    this.pictures = data.pictures || [];
    const shape = JSON.stringify([data.stacks, data.names, data.mode, data.compact, data.clickable, data.signed, this.pictures.length]);
    if (this.shape !== shape) {
      this.shape = shape;
      this.build();
    }
    this.paint();
  }

  // What the server says, and on top of it the presses that it did not know then.
  follow() {
    const waiting = presses.since(this.data.taken, this.data.key);
    this.off = new Set(this.data.off);
    for (const { heads, on } of this.switches ? waiting : []) {
      for (const i of heads) on ? this.off.delete(i) : this.off.add(i);
    }
    this.selected = this.switches || !waiting.length ? this.data.selected : waiting[waiting.length - 1];
  }

  build() {
    const { data, root } = this;
    if (data.mode === 'legend') return this.buildLegend();
    // Few columns, as of layers, leave room for the legend; their cells are as large as any.
    const few = data.stacks[0].title ? 8 : 0;
    const columns = Math.max(few, ...data.stacks.flatMap((stack) => stack.heads));
    this.columns = columns;
    root.className = 'grid-wrap' + (few ? ' kinds' : '') + (data.compact ? ' compact' : '') + (data.clickable ? ' act' : '') + (this.pictures.length ? ' pictures' : '');
    root.style.setProperty('--columns', columns);
    // Kinds of players stand beside each other where there is room, so that a layer is one line.
    root.style.setProperty('--all-columns', Math.max(few, data.stacks.reduce((sum, stack) => sum + Math.max(...stack.heads), 0)));
    root.style.setProperty('--stacks', data.stacks.length);
    root.style.setProperty('--edges', data.compact ? '16px' : `${this.switches ? 43 : 24}px`); // beside the cells of a row
    root.style.setProperty('--rows', data.stacks.reduce((sum, stack) => sum + stack.heads.length, 0));
    this.cells = [];
    this.title = make('span', { class: 'title' });
    this.count = make('span', { class: 'count', 'aria-live': 'polite' });
    this.tip = make('div', { class: 'tip', 'aria-hidden': 'true' });
    this.legend = make('div', { class: 'legend' });
    const tables = data.stacks.map((stack, s) => this.table(stack, s, Math.max(...stack.heads)));
    root.replaceChildren(
      make('div', { class: 'top' }, this.title, this.count),
      make('div', { class: 'scroll' }, ...tables), this.legend, this.tip,
    );
    this.focus = Math.min(this.focus, this.cells.length - 1);
  }

  table(stack, s, columns) {
    const head = make('tr', { role: 'row' }, make('th', { class: 'side', 'aria-hidden': 'true' }));
    for (let j = 0; j < columns; j += 1) head.append(this.header('col', j, s, j, `${stack.one || 'head'} ${j}`));
    if (this.switches) head.append(make('th', { class: 'gone', 'aria-hidden': 'true' }));
    const body = make('tbody', { role: 'rowgroup' });
    stack.heads.forEach((n, layer) => {
      const row = make('tr', { role: 'row' }, this.header('row', layer, s, layer, `layer ${layer}`));
      const group = (stack.together || [])[layer] || 1;
      for (let j = 0; j < columns; j += 1) row.append(j < n ? this.cell(s, layer, j, group) : make('td', { role: 'gridcell', 'aria-label': 'no head' }));
      if (this.switches) row.append(make('th', { class: 'gone', role: 'gridcell', 'data-gone': `${s}.${layer}` }));
      body.append(row);
    });
    const table = make('table', { role: 'grid' }, make('thead', { role: 'rowgroup' }, head), body);
    if (!this.switches) table.setAttribute('aria-multiselectable', 'false');
    if (stack.title) { // cells of all stacks are of one size
      table.style.width = `calc((min(100%, var(--columns) * var(--cell) + var(--edges)) - var(--edges)) * ${columns / this.columns} + var(--edges))`;
      if (columns < 4) table.style.marginRight = '5em'; // room for its title
      table.style.minWidth = this.data.compact ? '0' : `${columns * 25 + 46}px`;
    }
    if (stack.title || this.data.stacks.length > 1) table.prepend(make('caption', { text: stack.title || stack.name }));
    return table;
  }

  header(kind, number, s, at, label) {
    const role = kind === 'row' ? 'rowheader' : 'columnheader';
    const node = make('th', { class: kind === 'row' ? 'side' : 'col', role, scope: kind });
    if (!this.switches) {
      node.textContent = number;
      node.setAttribute('aria-label', label);
      return node;
    }
    const what = kind === 'row' ? `${label}: switch all its ${this.data.noun}` : `${label}: switch it in every layer`;
    node.append(make('button', { type: 'button', tabindex: '-1', 'aria-label': what, 'data-line': kind, 'data-s': s, 'data-at': at, text: number }));
    return node;
  }

  // group: how many heads in a row share a key and a value.
  cell(s, layer, head, group) {
    const i = this.cells.length;
    const { name } = this.data.stacks[s];
    const place = name === 'encoder' ? `${layer}.${head}` : `${name} ${layer}.${head}`;
    const where = this.data.names[i] || (this.data.stacks.length > 1 ? `${name} ` : '') + `layer ${layer}, head ${head}`;
    const button = make('button', { type: 'button', tabindex: '-1', 'data-c': place, 'data-i': i, role: this.switches ? 'switch' : 'gridcell' });
    const first = head - head % group;
    const shared = group > 1 ? `key and value shared by heads ${first} to ${first + group - 1}` : '';
    this.cells.push({ s, layer, head, where, button, name, shared });
    const last = group > 1 && (head + 1) % group === 0 && head + 1 < this.data.stacks[s].heads[layer];
    return make('td', { role: this.switches ? 'gridcell' : 'presentation', class: last ? 'last' : '' }, button);
  }

  // The legend alone, for several maps beside each other.
  buildLegend() {
    this.cells = [];
    this.tip = null;
    this.legend = make('div', { class: 'legend' });
    this.root.className = 'grid-wrap shared';
    this.root.replaceChildren(this.legend);
  }

  paint() {
    const { data } = this;
    if (data.scale) this.paintScale(data.scale);
    if (data.mode === 'legend') return this.paintLegend();
    this.title.textContent = data.title;
    for (const table of this.root.querySelectorAll('table')) {
      table.setAttribute('aria-label', data.title + (data.stacks.length > 1 ? `, ${table.caption.textContent}` : ''));
    }
    this.cells.forEach((cell, i) => this.paintCell(cell, i));
    this.paintCounts();
    return this.paintLegend();
  }

  // The scale's colours from its centre outwards; a dark page begins with its own and gets lighter, as a light one darker.
  paintScale(scale) {
    const helps = scale.slice(-3);
    const harms = scale.length > 3 ? scale.slice(0, 3).reverse() : helps;
    const set = (name, light, dark) => this.root.style.setProperty(name, `light-dark(${light}, ${dark})`);
    set('--centre', helps[0], 'var(--base)');
    for (const [side, [, half, end]] of [['helps', helps], ['harms', harms]]) {
      set(`--${side}-half`, half, end);
      set(`--${side}-end`, end, half);
    }
  }

  paintCell({ button, where, shared }, i) {
    const { data } = this;
    this.fill(button, data.shares[i]);
    this.mark(button, data.marks[i]);
    if (this.pictures[i]) button.style.setProperty('--picture', `url("${this.pictures[i]}")`);
    button.tabIndex = i === this.focus ? 0 : -1;
    let label = where + (data.tips[i] ? `: ${data.tips[i].replaceAll('\n', ', ')}` : '');
    if (data.marks[i]) label += `, ${this.meaning(data.marks[i])}`;
    if (shared) label += `, ${shared}`;
    if (this.switches) {
      button.setAttribute('aria-checked', String(!this.off.has(i)));
      label += this.off.has(i) ? ', off' : ', on';
    } else button.setAttribute('aria-selected', String(i === this.selected));
    button.setAttribute('aria-label', label);
  }

  // The colour of a share of the scale's limit; null is no value.
  fill(node, share) {
    const t = Math.abs(share || 0) * 2;
    const side = share < 0 ? 'harms' : 'helps';
    node.style.setProperty('--from', t > 1 ? `var(--${side}-half)` : 'var(--centre)');
    node.style.setProperty('--to', t > 1 ? `var(--${side}-end)` : `var(--${side}-half)`);
    node.style.setProperty('--t', ((t > 1 ? t - 1 : t) * 100).toFixed(2));
    node.classList.toggle('none', share === null);
  }

  // A ring with the head's sign: hollow by its own interval, filled after correction too.
  mark(node, mark) {
    node.classList.toggle('mark', Boolean(mark));
    node.classList.toggle('plus', mark > 0);
    node.classList.toggle('sure', Math.abs(mark) > 1);
  }

  meaning(mark) {
    const { meanings } = this.data;
    return Object.keys(meanings).filter((size) => size <= Math.abs(mark)).map((size) => meanings[size]).join(', ');
  }

  paintCounts() {
    if (!this.switches) return;
    this.count.textContent = `${this.off.size} of ${this.cells.length} ${this.data.noun} off`;
    const gone = {};
    for (const i of this.off) {
      const place = `${this.cells[i].s}.${this.cells[i].layer}`;
      gone[place] = (gone[place] || 0) + 1;
    }
    for (const node of this.root.querySelectorAll('[data-gone]')) {
      const n = gone[node.dataset.gone] || 0;
      node.textContent = n ? `−${n}` : '';
      node.setAttribute('aria-label', `${n} off`);
    }
  }

  paintLegend() {
    const { data, switches } = this;
    const bar = make('span', { class: 'bar' });
    const harms = data.signed ? 'var(--harms-end), var(--harms-half), ' : '';
    bar.style.background = `linear-gradient(to right, ${harms}var(--centre), var(--helps-half), var(--helps-end))`;
    const [low, high] = [data.ends[0], data.ends[data.ends.length - 1]];
    const unit = data.unit ? ` ${data.unit}` : '';
    let words = data.compact ? [low, high] : [low, `${high}${unit}`];
    if (data.signed && !data.compact) words = [`harms ${low}`, `${high} helps${data.unit ? `, ${data.unit}` : ''}`];
    if (data.endless) words = data.signed ? ['harms', 'helps'] : ['0', 'most'];
    const scale = make('span', { class: 'scale' }, make('span', { text: words[0] }), bar, make('span', { text: words[1] }));
    if (data.compact && data.shared) return this.legend.replaceChildren();
    const parts = data.shares.some((share) => share !== null) && !data.named.length ? [scale] : [];
    for (const [share, meaning] of data.named) {
      const swatch = make('span', { class: 'swatch filled' });
      this.fill(swatch, share);
      parts.push(make('span', { class: 'key' }, swatch, meaning));
    }
    for (const [size, words] of Object.entries(data.compact ? {} : data.meanings)) {
      const marks = ['−', '+'].map((sign) => make('span', { class: 'swatch', 'aria-label': sign, role: 'img' }));
      marks.forEach((swatch, n) => this.mark(swatch, n ? Number(size) : -size));
      if (data.marks.some(Boolean)) parts.push(make('span', { class: 'key' }, ...marks, words));
    }
    if (switches) parts.push(make('span', { class: 'key' }, make('span', { class: 'swatch cross' }), 'switched off'));
    if (!data.compact && this.cells.some(({ shared }) => shared)) parts.push(make('span', { class: 'key', text: 'heads between two lines share a key and a value' }));
    return this.legend.replaceChildren(...parts);
  }

  click(button, range) {
    if (!this.data.clickable) return undefined;
    return button.dataset.line ? this.toggleLine(button.dataset) : this.act(Number(button.dataset.i), range);
  }

  act(i, range) {
    this.moveFocus(i, false);
    if (!this.switches) {
      this.press(i);
      return;
    }
    const from = this.last;
    if (range && from !== null && this.cells[from]) this.set(this.between(from, i), this.off.has(from));
    else {
      this.set([i], !this.off.has(i));
      this.last = i;
    }
  }

  // Heads in the rectangle of two heads of one stack; across stacks, those between them in reading order.
  between(a, b) {
    const [p, q] = [this.cells[a], this.cells[b]];
    const inside = (v, x, y) => v >= Math.min(x, y) && v <= Math.max(x, y);
    return this.cells.map((_, i) => i).filter((i) => {
      const c = this.cells[i];
      if (p.s !== q.s) return inside(i, a, b);
      return c.s === p.s && inside(c.layer, p.layer, q.layer) && inside(c.head, p.head, q.head);
    });
  }

  toggleLine({ line, s, at }) {
    const key = line === 'row' ? 'layer' : 'head';
    const those = this.cells.map((_, i) => i).filter((i) => this.cells[i].s === Number(s) && this.cells[i][key] === Number(at));
    this.set(those, !those.every((i) => this.off.has(i)));
  }

  // What changes is sent, not the whole state: the server may have undone something meanwhile.
  set(those, off) {
    this.press({ heads: those, on: !off });
  }

  press(value) {
    presses.add(this, this.data.key, value);
    this.follow();
    this.paint();
  }

  keydown(event) {
    const button = event.target.closest('button');
    if (!button) return;
    if (event.key === 'Escape') return this.hideTip();
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      return this.click(button, event.shiftKey);
    }
    const next = this.step(button, event);
    if (!next) return undefined;
    event.preventDefault();
    return next.dataset.i === undefined ? next.focus() : this.moveFocus(Number(next.dataset.i), true);
  }

  // Rows of buttons as drawn, headers included, so that the arrows reach whole layers and columns too.
  step(button, { key, ctrlKey }) {
    const rows = [...this.root.querySelectorAll('tr')].map((tr) => [...tr.children].map((c) => c.querySelector('button')));
    const y = rows.findIndex((row) => row.includes(button));
    const x = rows[y].indexOf(button);
    const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
    if (key === 'Home' || key === 'End') {
      const cells = ctrlKey ? this.cells.map((c) => c.button) : rows[y].filter((b) => b && b.dataset.i !== undefined);
      return key === 'Home' ? cells[0] : cells[cells.length - 1];
    }
    if (!moves[key]) return null;
    const [dy, dx] = moves[key];
    for (let j = y + dy, i = x + dx; rows[j] && i >= 0 && i < rows[j].length; j += dy, i += dx) if (rows[j][i]) return rows[j][i];
    return null;
  }

  moveFocus(i, take) {
    this.cells[this.focus].button.tabIndex = -1;
    this.focus = i;
    this.cells[i].button.tabIndex = 0;
    if (take) this.cells[i].button.focus();
  }

  pointerover(event) { this.showTip(event.target.closest('td button')); }

  pointerleave() { this.hideTip(); }

  focusin(event) { if (event.target.matches(':focus-visible')) this.showTip(event.target.closest('td button')); }

  focusout() { this.hideTip(); }

  hideTip() { if (this.tip) this.tip.style.visibility = 'hidden'; }

  showTip(button) {
    if (!button) return this.hideTip();
    const i = Number(button.dataset.i);
    const lines = [this.data.tips[i], this.cells[i].shared, this.data.marks[i] ? this.meaning(this.data.marks[i]) : '', this.off.has(i) && this.switches ? 'switched off' : ''];
    this.tip.replaceChildren(make('b', { text: this.cells[i].where }), lines.filter(Boolean).join('\n'));
    const box = this.root.getBoundingClientRect();
    const at = button.getBoundingClientRect();
    const left = Math.min(at.left - box.left, Math.max(0, box.width - this.tip.offsetWidth));
    const above = at.top - box.top - this.tip.offsetHeight - 6;
    this.tip.style.left = `${left}px`;
    this.tip.style.top = `${at.top - this.tip.offsetHeight > 70 ? above : at.bottom - box.top + 6}px`;
    this.tip.style.visibility = 'visible';
    return undefined;
  }
}

export default function mount(component) {
  const { parentElement } = component;
  parentElement.headGrid ??= new HeadGrid(parentElement);
  parentElement.headGrid.update(component);
}
