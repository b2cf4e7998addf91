/* All heads by two of their measures. The choice is in the address, so that a link shows it again. */

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, FOOT, ROOM] = [900, 560, 66, 16, 12, 52, 0.04];
const SHAPES = {
  circle: 'M-4.5,0a4.5,4.5 0 1,0 9,0a4.5,4.5 0 1,0 -9,0z',
  square: 'M-4,-4h8v8h-8z',
  'triangle-up': 'M0,-5.2L5.2,4H-5.2z',
  diamond: 'M0,-5.6L5.6,0L0,5.6L-5.6,0z',
  cross: 'M-1.7,-5h3.4v3.3h3.3v3.4h-3.3v3.3h-3.4v-3.3h-3.3v-3.4h3.3z',
  x: 'M-5,-2.6L-2.6,-5L0,-2.4L2.6,-5L5,-2.6L2.4,0L5,2.6L2.6,5L0,2.4L-2.6,5L-5,2.6L-2.4,0z',
};

function drawScatter() {
  const wish = wishes();
  const unknown = [];
  const models = modelNames();
  const modelNumber = numberOf(wish.get('model'), models, 0, unknown);
  const model = data.models[modelNumber];
  const titles = model.measures.map(titleOf);
  const colours = model.groupings.map(({ name }) => name);
  const across = numberOf(wish.get('across'), titles, 0, unknown);
  const upwards = numberOf(wish.get('upwards'), titles, Math.min(1, titles.length - 1), unknown);
  const colour = numberOf(wish.get('colour'), colours, 0, unknown);
  const choose = (change) => {
    remember({ model: models[modelNumber], across: titles[across], upwards: titles[upwards], colour: colours[colour], ...change });
    drawScatter();
  };
  const controls = make('div', { class: 'controls' });
  if (models.length > 1) {
    controls.append(picker('Model', models, modelNumber, (number) => {
      remember({ model: models[number] });
      drawScatter();
    }));
  }
  controls.append(
    picker('Across', titles, across, (number) => choose({ across: titles[number] })),
    picker('Upwards', titles, upwards, (number) => choose({ upwards: titles[number] })),
    picker('Colours', colours, colour, (number) => choose({ colour: colours[number] })),
  );
  const groups = model.groupings[colour].groups;
  show(controls, unknownWords(unknown), legendOf(groups), plotOf(modelNumber, model, model.measures[across], model.measures[upwards], groups));
}

function dotOf(group) {
  return draw('path', { class: 'dot', d: SHAPES[group.symbol] ?? SHAPES.circle, fill: group.colour, 'fill-opacity': 0.85 });
}

function legendOf(groups) {
  if (groups.length < 2) return '';
  return make('div', { class: 'legend' }, ...groups.map((group) => {
    const swatch = draw('svg', { width: 14, height: 14, viewBox: '-7 -7 14 14', 'aria-hidden': 'true' }, dotOf(group));
    return make('span', {}, swatch, ` ${group.name} ${group.heads.length}`);
  }));
}

function plotOf(modelNumber, model, x, y, groups) {
  const drawn = (head) => x.values[head] !== null && y.values[head] !== null;
  const heads = groups.flatMap((group) => group.heads).filter(drawn);
  if (!heads.length) return make('p', {}, 'No head has both measures.');
  const xEnds = endsOf(heads.map((head) => x.values[head]));
  const yEnds = endsOf(heads.map((head) => y.values[head]));
  const [width, height] = [WIDTH - LEFT - RIGHT, HEIGHT - TOP - FOOT];
  const left = (value) => LEFT + width * (ROOM + (1 - 2 * ROOM) * share(value, xEnds));
  const top = (value) => TOP + height * (1 - ROOM - (1 - 2 * ROOM) * share(value, yEnds));
  const picture = draw('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'group', 'aria-label': `All heads by ${titleOf(x)} and ${titleOf(y)}` });
  for (const value of ticksOf(xEnds, 7)) {
    picture.append(draw('line', { class: value ? 'line' : 'zero', x1: left(value), x2: left(value), y1: TOP, y2: TOP + height }));
    picture.append(draw('text', { class: 'tick', x: left(value), y: TOP + height + 18, 'text-anchor': 'middle' }, numberText(value)));
  }
  for (const value of ticksOf(yEnds, 7)) {
    picture.append(draw('line', { class: value ? 'line' : 'zero', x1: LEFT, x2: LEFT + width, y1: top(value), y2: top(value) }));
    picture.append(draw('text', { class: 'tick', x: LEFT - 8, y: top(value) + 4, 'text-anchor': 'end' }, numberText(value)));
  }
  picture.append(draw('text', { class: 'axis', x: LEFT + width / 2, y: HEIGHT - 10, 'text-anchor': 'middle' }, titleOf(x)));
  picture.append(draw('text', { class: 'axis', transform: `translate(14 ${TOP + height / 2}) rotate(-90)`, 'text-anchor': 'middle' }, titleOf(y)));
  const tip = make('div', { class: 'tip', hidden: '' });
  const frame = make('div', { class: 'plot' }, make('div', { class: 'wide' }, picture), tip);
  for (const group of groups) {
    for (const head of group.heads.filter(drawn)) {
      const lines = [`Head ${model.heads[head]}`, ...[x, y].map((measure) => `${[measure.name, measure.language].filter(Boolean).join(', ')}: ${measure.texts[head]}`), group.name];
      const point = draw('a', { href: headAddress(modelNumber, head), transform: `translate(${left(x.values[head])} ${top(y.values[head])})`, 'aria-label': lines.join(', ') }, dotOf(group));
      const show = () => showTip(frame, picture, tip, point, lines);
      const hide = () => { tip.hidden = true; };
      for (const [event, act] of [['pointerenter', show], ['focus', show], ['pointerleave', hide], ['blur', hide]]) point.addEventListener(event, act);
      picture.append(point);
    }
  }
  return frame;
}

function showTip(frame, picture, tip, point, lines) {
  tip.textContent = lines.join('\n');
  tip.hidden = false;
  const box = frame.getBoundingClientRect();
  const dot = point.getBoundingClientRect();
  const left = dot.right - box.left + 8;
  tip.style.left = `${Math.max(0, Math.min(left, box.width - tip.offsetWidth))}px`;
  tip.style.top = `${dot.bottom - box.top + 6}px`;
}

start(drawScatter);
