/* The map of heads by role: the head grid of headgrid.js, whose class stands before this text, with other paint.
   data.kinds: [{ name, mark, colour, ink, heads }]; data.roles: for each head the numbers of its kinds, the first one
   to fill the cell, or null where it was not looked at. */

class RoleGrid extends HeadGrid {
  build() {
    super.build();
    this.root.classList.add('roles');
  }

  // The first role fills the cell, the others are a strip at its foot.
  paintCell({ button, where }, i) {
    const { data } = this;
    const own = (data.roles[i] || []).map((k) => data.kinds[k]);
    const others = own.slice(1);
    const strip = others.map((kind, n) => `${kind.colour} ${(100 * n) / others.length}% ${(100 * (n + 1)) / others.length}%`);
    const foot = others.length ? `linear-gradient(to right, ${strip.join(', ')}) bottom / 100% 30% no-repeat, ` : '';
    button.style.background = own.length ? `${foot}${own[0].colour}` : '';
    button.style.color = own.length ? own[0].ink : '';
    button.style.setProperty('--foot', others.length ? '30%' : '0');
    button.textContent = own.length ? data.shown[i] : '';
    button.classList.toggle('none', data.roles[i] === null);
    button.tabIndex = i === this.focus ? 0 : -1;
    button.setAttribute('aria-selected', String(i === this.selected));
    button.setAttribute('aria-label', where + (data.tips[i] ? `: ${data.tips[i].replaceAll('\n', ', ')}` : ''));
  }

  paintLegend() {
    const { data } = this;
    const parts = data.kinds.map(({ name, mark, colour, ink, heads }) => {
      const swatch = make('span', { class: 'swatch', text: mark, 'aria-hidden': 'true' });
      swatch.style.background = colour;
      swatch.style.color = ink;
      return make('span', { class: heads ? 'key' : 'key none' }, swatch, `${name} ${heads}`);
    });
    const without = data.roles.filter((own) => own !== null && own.length === 0).length;
    parts.push(make('span', { class: 'key' }, make('span', { class: 'swatch', 'aria-hidden': 'true' }), `no role ${without}`));
    this.legend.replaceChildren(...parts);
  }
}

export default function mount(component) {
  const { parentElement } = component;
  parentElement.roleGrid ??= new RoleGrid(parentElement);
  parentElement.roleGrid.update(component);
}
