/* Two buttons that save the figure above them. Plotly draws the file, here in the browser, from the figure as it is
   printed: on white, of one size, whatever the page's theme and width. Its own camera button does the work. */

const chart = (name) => document.querySelector(`.st-key-${CSS.escape(name)} .js-plotly-plot`);

function save(data, kind, told) {
  const plot = chart(data.chart);
  const camera = plot && plot.querySelector('.modebar-btn[aria-label^="Download plot"]');
  if (!camera || !plot._context) {
    told.textContent = 'The figure is not drawn yet; try again.';
    return;
  }
  const printed = JSON.parse(data.figure);
  const kept = { data: plot.data, layout: plot.layout };
  const options = plot._context.toImageButtonOptions;
  told.textContent = '';
  try {
    // Plotly copies them as the click comes in, so the page's figure has them back at once.
    Object.assign(plot, { data: printed.data, layout: printed.layout });
    plot._context.toImageButtonOptions = {
      format: kind, filename: data.name, width: data.width, height: data.height, scale: kind === 'png' ? 2 : 1,
    };
    camera.click();
  } finally {
    Object.assign(plot, kept);
    plot._context.toImageButtonOptions = options;
  }
}

export default function ({ parentElement, data }) {
  const root = parentElement.querySelector('.save');
  const told = root.querySelector('.told');
  for (const button of root.querySelectorAll('button')) {
    const kind = button.dataset.kind;
    button.setAttribute('aria-label', `Save this figure as ${kind.toUpperCase()}: ${data.name}`);
    button.onclick = () => save(data, kind, told);
  }
}
