/* Before BertViz: take the page's text colour, keep the frame as tall as its content, and stand in for RequireJS,
   of which BertViz calls only config() and requirejs([jquery, d3], fn). */
(() => {
  const root = document.documentElement;
  const fit = () => {
    try {
      const app = parent.document.querySelector('.stApp');
      if (app) root.style.setProperty('--ink', parent.getComputedStyle(app).color);
      frameElement.style.height = `${Math.ceil(document.body.getBoundingClientRect().height) + 4}px`;
      // streamlit's box around the frame keeps the height it began with, and what follows would lie over the frame
      const box = frameElement.closest('[data-testid="stElementContainer"]');
      if (box) box.style.height = 'auto';
    } catch { /* alone in a tab */ }
  };
  new ResizeObserver(fit).observe(document.body);
  addEventListener('load', fit);
  fit();
})();
window.require = { config() {} };
window.requirejs = (names, start) => start(window.jQuery, window.d3);

// The buttons below save what is drawn, dark on white whatever the theme: the SVG itself, or its picture.
(() => {
  const put = (parent, tag, attributes, text = '') => {
    const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.textContent = text;
    if (parent) parent.append(node);
    return node;
  };
  const drawing = (buttons) => {
    const area = document.body.getBoundingClientRect();
    const at = (node) => {
      const box = node.getBoundingClientRect();
      return { x: box.left - area.left + 8, y: box.top - area.top + 8, height: box.height };
    };
    const right = Math.max(...[...document.querySelectorAll('.panel')].map((panel) => panel.getBoundingClientRect().right));
    const size = { width: Math.ceil(right - area.left) + 16, height: Math.ceil(at(buttons).y) };
    const out = put(null, 'svg', { ...size, viewBox: `0 0 ${size.width} ${size.height}`, 'font-family': 'sans-serif' });
    put(out, 'rect', { ...size, fill: '#fff' });
    for (const panel of document.querySelectorAll('.panel')) {
      const title = panel.querySelector('h2');
      put(out, 'text', { x: at(title).x, y: at(title).y + 15, 'font-size': 15, 'font-weight': 600 }, title.textContent);
      for (const head of panel.querySelectorAll('.heads li')) {
        const { x, y } = at(head);
        put(out, 'rect', { x, y: y + 4, width: 11, height: 11, fill: head.querySelector('i').style.background });
        put(out, 'text', { x: x + 16, y: y + 14, 'font-size': 14 }, head.textContent);
      }
      const shown = panel.querySelector('#vis svg');
      if (!shown) continue; // nothing was drawn of this sentence
      put(out, 'g', { transform: `translate(${at(shown).x} ${at(shown).y})` }).append(
        ...[...shown.children].map((child) => child.cloneNode(true)),
      );
    }
    for (const text of out.querySelectorAll('text')) text.setAttribute('fill', '#222');
    return [new XMLSerializer().serializeToString(out), size];
  };
  const hand = (blob, name) => {
    const link = Object.assign(document.createElement('a'), { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  };
  addEventListener('click', ({ target }) => {
    const button = target.closest && target.closest('button[data-kind]');
    if (!button) return;
    const { kind } = button.dataset;
    const name = `${button.parentNode.dataset.name}.${kind}`;
    const [text, { width, height }] = drawing(button.parentNode);
    const svg = new Blob([text], { type: 'image/svg+xml' });
    if (kind === 'svg') {
      hand(svg, name);
      return;
    }
    const image = new Image();
    image.onload = () => {
      const canvas = Object.assign(document.createElement('canvas'), { width: 2 * width, height: 2 * height });
      canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => hand(blob, name));
      URL.revokeObjectURL(image.src);
    };
    image.src = URL.createObjectURL(svg);
  });
})();
