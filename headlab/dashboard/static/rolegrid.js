/* The map of heads by role: the head grid of headgrid.js, whose class stands before this text, with other paint.
   data.kinds: [{ name, mark, colour, ink, heads }]; data.roles: for each head the numbers of its kinds, the first one
   to fill the cell, or null where it was not looked at. data.chosen: the kind whose heads stand out, -1 for none;
   data.legendKey: the key of a press on the legend, empty where it cannot be pressed. */

class RoleGrid extends HeadGrid {
  build() {
    super.build();
    this.root.classList.add('roles');
    this.root.querySelector('.scroll').before(this.legend);
  }

  follow() {
    super.follow();
    const waiting = presses.since(this.data.taken, this.data.legendKey);
    this.chosen = waiting.length ? waiting[waiting.length - 1] : this.data.chosen;
  }

  // A press on a role of the legend chooses it; another one takes it back.
  click(button, range) {
    if (button.dataset.kind === undefined) return super.click(button, range);
    const kind = Number(button.dataset.kind);
    presses.add(this, this.data.legendKey, kind === this.chosen ? -1 : kind);
    this.follow();
    return this.paint();
  }

  // The arrows move over the map; a role of the legend is an ordinary button.
  keydown(event) {
    if (event.target.closest('button')?.dataset.kind !== undefined) return undefined;
    return super.keydown(event);
  }

  // The chosen role first, if the head has it.
  kindsOf(i) {
    const numbers = this.data.roles[i] || [];
    if (!numbers.includes(this.chosen)) return numbers;
    return [this.chosen, ...numbers.filter((number) => number !== this.chosen)];
  }

  // The first role fills the cell, the others are a strip at its foot.
  paintCell({ button, where }, i) {
    const { data } = this;
    const numbers = this.kindsOf(i);
    const own = numbers.map((k) => data.kinds[k]);
    const others = own.slice(1);
    const strip = others.map((kind, n) => `${kind.colour} ${(100 * n) / others.length}% ${(100 * (n + 1)) / others.length}%`);
    const foot = others.length ? `linear-gradient(to right, ${strip.join(', ')}) bottom / 100% 30% no-repeat, ` : '';
    button.style.background = own.length ? `${foot}${own[0].colour}` : '';
    button.style.color = own.length ? own[0].ink : '';
    button.style.setProperty('--foot', others.length ? '30%' : '0');
    const isFirst = numbers.length > 0 && numbers[0] === data.roles[i][0];
    if (own.length) button.textContent = isFirst ? data.shown[i] : own[0].mark;
    else button.textContent = '';
    button.classList.toggle('beside', this.chosen >= 0 && !numbers.includes(this.chosen));
    button.classList.toggle('none', data.roles[i] === null);
    button.tabIndex = i === this.focus ? 0 : -1;
    button.setAttribute('aria-selected', String(i === this.selected));
    button.setAttribute('aria-label', where + (data.tips[i] ? `: ${data.tips[i].replaceAll('\n', ', ')}` : ''));
  }

  paintLegend() {
    const { data } = this;
    const parts = data.kinds.map(({ name, mark, colour, ink, heads }, k) => {
      const swatch = make('span', { class: 'swatch', text: mark, 'aria-hidden': 'true' });
      swatch.style.background = colour;
      swatch.style.color = ink;
      const words = `${name} ${heads}`;
      if (!heads || !data.legendKey) return make('span', { class: heads ? 'key' : 'key none' }, swatch, words);
      const pressed = String(k === this.chosen);
      return make('button', { type: 'button', class: 'key', 'data-kind': k, 'aria-pressed': pressed }, swatch, words);
    });
    const without = data.roles.filter((own) => own !== null && own.length === 0).length;
    parts.push(make('span', { class: 'key' }, make('span', { class: 'swatch', 'aria-hidden': 'true' }), `no role ${without}`));
    const focused = this.root.getRootNode().activeElement?.dataset?.kind;
    this.legend.replaceChildren(...parts);
    if (focused !== undefined) this.legend.querySelector(`[data-kind="${focused}"]`)?.focus();
  }
}

export default function mount(component) {
  const { parentElement } = component;
  parentElement.roleGrid ??= new RoleGrid(parentElement);
  parentElement.roleGrid.update(component);
}
