/* One head: each of its measures in every language with its interval, and its roles. */

const BAR = 300;

function drawHead() {
  const wish = wishes();
  const unknown = [];
  const models = modelNames();
  const modelNumber = numberOf(wish.get('model'), models, 0, unknown);
  const model = data.models[modelNumber];
  const head = numberOf(wish.get('head'), model.heads, 0, unknown);
  const choose = (change) => {
    location.hash = String(new URLSearchParams({ model: models[modelNumber], head: model.heads[head], ...change }));
  };
  const controls = make('div', { class: 'controls' });
  if (models.length > 1) {
    controls.append(picker('Model', models, modelNumber, (number) => {
      location.hash = String(new URLSearchParams({ model: models[number] }));
    }));
  }
  controls.append(picker('Head', model.heads, head, (number) => choose({ head: model.heads[number] })));
  const parts = [controls, unknownWords(unknown), make('h2', {}, `Head ${model.heads[head]}`)];
  for (const { language, roles } of model.roles) {
    parts.push(make('p', {}, `Roles (${language}): ${roles[head].join('; ') || 'none'}.`));
  }
  const names = [...new Set(model.measures.map(({ name }) => name))];
  for (const name of names) parts.push(...tableOf(name, model.measures.filter((measure) => measure.name === name), head));
  show(...parts);
  document.title = document.title.replace(/^[^·]*/, `Head ${model.heads[head]} `);
}

// The rows of one measure, a language each, with bars on one scale: that of all heads in all languages.
function tableOf(name, measures, head) {
  const ends = endsOf(measures.flatMap(({ values, low, high }) => [...values, low?.[head] ?? null, high?.[head] ?? null]));
  if (ends[0] > 0) ends[0] = 0;
  const rows = measures.map((measure) => make('tr', {},
    make('th', { scope: 'row' }, measure.language || '–'),
    make('td', { class: 'n' }, measure.texts[head]),
    make('td', { class: 'bar' }, barOf(measure, head, ends))));
  const table = make('table', { class: 'bars' }, make('tbody', {}, ...rows));
  return [make('h3', {}, name), make('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': name }, table)];
}

function barOf(measure, head, ends) {
  const value = measure.values[head];
  const picture = draw('svg', { viewBox: `0 0 ${BAR} 18`, preserveAspectRatio: 'none', 'aria-hidden': 'true' });
  const left = (number) => 4 + (BAR - 8) * share(number, ends);
  if (ends[0] < 0 && ends[1] > 0) picture.append(draw('line', { class: 'zero', x1: left(0), x2: left(0), y1: 0, y2: 18 }));
  if (value === null) return picture;
  const low = measure.low?.[head] ?? null;
  const colour = measure.colours[head];
  if (low !== null) picture.append(draw('line', { x1: left(low), x2: left(measure.high[head]), y1: 9, y2: 9, stroke: colour, 'stroke-width': 2 }));
  picture.append(draw('rect', { x: left(value) - 3, y: 4, width: 6, height: 10, fill: colour }));
  return picture;
}

start(drawHead);
