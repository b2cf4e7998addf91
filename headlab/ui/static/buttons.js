/* A row of buttons whose presses go to the log. A button stays the same node for as long as its key is in the row. */

class Row {
  constructor(parent) {
    this.root = document.createElement('div');
    this.root.className = 'row';
    this.nodes = new Map();
    parent.appendChild(this.root);
    presses.listen(this.root, (button) => presses.add(this, button.dataset.key, null));
  }

  update({ data, setTriggerValue }) {
    this.setTriggerValue = setTriggerValue;
    presses.acknowledge(data);
    const keys = new Set(data.buttons.map((button) => button.key));
    for (const [key, node] of this.nodes) {
      if (keys.has(key)) continue;
      node.remove();
      this.nodes.delete(key);
    }
    data.buttons.forEach((button, place) => {
      const node = this.node(button);
      if (this.root.children[place] !== node) this.root.insertBefore(node, this.root.children[place] ?? null);
    });
  }

  node({ key, label, icon, kind, help, disabled }) {
    let node = this.nodes.get(key);
    if (!node) {
      node = document.createElement('button');
      node.type = 'button';
      node.dataset.key = key;
      const [sign, text] = [document.createElement('span'), document.createElement('span')];
      sign.className = 'icon';
      sign.setAttribute('aria-hidden', 'true');
      node.append(sign, text);
      this.nodes.set(key, node);
    }
    const [sign, text] = node.children;
    node.className = kind;
    node.disabled = disabled;
    node.title = help;
    sign.textContent = icon;
    sign.hidden = !icon;
    text.textContent = label;
    return node;
  }
}

export default function mount(component) {
  const { parentElement } = component;
  parentElement.row ??= new Row(parentElement);
  parentElement.row.update(component);
}
