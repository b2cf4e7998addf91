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
