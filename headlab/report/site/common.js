/* What the scatter and the page of a head share. The data are in the page itself: a page that was opened from the disk
   may fetch nothing. data.models: [{ name, heads, measures, roles }]; a measure has a value and a text of each head. */

const data = JSON.parse(document.getElementById('data').textContent);
const place = document.getElementById('page');
const SVG = 'http://www.w3.org/2000/svg';

function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function draw(tag, properties = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(properties)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// What the address says after its #, as names and values.
function wishes() {
  return new URLSearchParams(location.hash.slice(1));
}

function remember(choices) {
  const parameters = new URLSearchParams(choices);
  if (location.hash.slice(1) !== String(parameters)) history.replaceState(null, '', `#${parameters}`);
}

// A list to choose from. `options`: texts; `chosen`: the number of the one that is chosen.
function picker(label, options, chosen, onChange) {
  const list = make('select', { id: `pick-${label.toLowerCase()}` });
  options.forEach((text, number) => {
    const option = make('option', { value: number }, text);
    option.selected = number === chosen;
    list.append(option);
  });
  list.addEventListener('change', () => onChange(Number(list.value)));
  return make('label', {}, label, list);
}

// Put other things on the page; a list that was in use stays in use, also for the keyboard.
function show(...parts) {
  const { id } = document.activeElement;
  place.replaceChildren(...parts);
  if (id) document.getElementById(id)?.focus();
}

// The number of the thing that the address asks for by its name; `otherwise` where it asks for none. What is not there
// is added to `unknown`.
function numberOf(wish, names, otherwise, unknown) {
  if (wish === null) return otherwise;
  const number = names.indexOf(wish);
  if (number >= 0) return number;
  unknown.push(wish.slice(0, 80));
  return otherwise;
}

function unknownWords(unknown) {
  if (!unknown.length) return '';
  return make('p', { role: 'alert' }, `The link asks for ${unknown.join(', ')}, which is not here; something else is shown.`);
}

// The names of the models, each once: two of one name are told apart by their number.
function modelNames() {
  return data.models.map(({ name }, number) => {
    const earlier = data.models.slice(0, number).filter((model) => model.name === name).length;
    return earlier ? `${name} (${earlier + 1})` : name;
  });
}

function titleOf(measure) {
  return [measure.name, measure.language, measure.unit].filter(Boolean).join(', ');
}

function headAddress(model, head) {
  return `head.html#${new URLSearchParams({ model: modelNames()[model], head: data.models[model].heads[head] })}`;
}

// A value's place between two ends, from 0 to 1; ends that are equal share the middle.
function share(value, [low, high]) {
  return high > low ? (value - low) / (high - low) : 0.5;
}

function endsOf(values) {
  const known = values.filter((value) => value !== null);
  return known.length ? [Math.min(...known), Math.max(...known)] : [0, 1];
}

// About `count` round numbers between two ends.
function ticksOf([low, high], count) {
  if (!(high > low)) return [low];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const ticks = [];
  for (let number = Math.ceil(low / step); number * step <= high + step * 1e-9; number += 1) ticks.push(number * step);
  return ticks;
}

function numberText(value) {
  return String(Number(value.toPrecision(6))).replace('-', '−');
}

// Draw now, and again when the address changes: a link may name another head.
function start(drawPage) {
  window.addEventListener('hashchange', drawPage);
  drawPage();
}
