/* A row of buttons whose presses go to the log. A button stays the same node for as long as its key is in the row. */

// What the number fields of a form show now, by the class that streamlit makes of a widget's key: a number that was
// typed just before the press may not have reached the server, and can get lost on its way.
function typed(form) {
  if (!form) return null;
  const found = {};
  for (const input of document.querySelectorAll(`[class*="st-key-${form}"] [data-testid="stNumberInput"] input`)) {
    const [, key] = input.closest('[class*="st-key-"]').className.match(/(?:^|\s)st-key-(\S+)/);
    if (key.startsWith(form)) found[key] = input.value;
  }
  return found;
}

class Row {
  constructor(parent) {
    this.root = document.createElement('div');
    this.root.className = 'row';
    this.nodes = new Map();
    parent.appendChild(this.root);
    presses.listen(this.root, ({ dataset }) => presses.add(this, dataset.key, typed(dataset.form)));
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

  node({ key, label, icon, kind, help, disabled, form }) {
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
    node.dataset.form = form;
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
