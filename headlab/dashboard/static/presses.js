/* What a person pressed, in order, until the server says that it has taken it. One log a tab.
   It is put before the script of each component that can be pressed: buttons, the head grid, and the root, which is on
   every page and draws nothing. A component sends the whole log, so nothing depends on which message arrives. */

const [FIRST_WAIT_MS, KEPT] = [4000, 500];
const SHAKE = 8; // pixels that a pointer may move while it is down

class Presses {
  constructor() {
    this.tab = Math.random().toString(36).slice(2);
    this.count = 0;
    this.made = []; // [number, key, value], the newest ones
    this.waiting = []; // those of them that are not taken yet
    this.session = null;
    this.root = null;
    this.wait = FIRST_WAIT_MS;
    this.held = null; // the button that the pointer went down on
    window.addEventListener('pointerdown', () => { this.held = null; }, true);
    window.addEventListener('pointerup', (event) => this.release(event), true);
  }

  // Call `act(button, shift)` whenever a button in `root` is pressed. The browser makes a click only if the pointer is
  // still over the button when it goes up, and the page may be drawn anew and move the button in between.
  listen(root, act) {
    root.addEventListener('pointerdown', ({ target, button, pointerId, clientX, clientY }) => {
      const node = target.closest('button');
      if (node && !node.disabled && button === 0) this.held = { node, act, pointerId, clientX, clientY };
    });
    root.addEventListener('click', ({ target, shiftKey }) => {
      const node = target.closest('button');
      if (node && !node.disabled) act(node, shiftKey);
    });
  }

  release(event) {
    const { held } = this;
    this.held = null;
    if (!held || held.pointerId !== event.pointerId) return;
    if (event.composedPath().includes(held.node) && !held.node.disabled) return; // its click comes next
    const moved = Math.hypot(event.clientX - held.clientX, event.clientY - held.clientY);
    if (moved <= SHAKE) held.act(held.node, event.shiftKey); // else it was dragged away, to press nothing
  }

  add(sender, key, value) {
    this.count += 1;
    const press = [this.count, key, value];
    this.made = [...this.made, press].slice(-KEPT);
    this.waiting.push(press);
    this.wait = FIRST_WAIT_MS;
    this.send(sender);
  }

  // Streamlit drops a message of a fragment that is not there just then, and all while it is disconnected.
  // The root is in no fragment, so it is the one that asks again, ever more seldom.
  send(sender) {
    clearTimeout(this.timer);
    this.say();
    if (!this.waiting.length) return;
    sender.setTriggerValue('presses', { tab: this.tab, presses: this.waiting });
    this.timer = setTimeout(() => {
      this.wait *= 2;
      this.send(this.root ?? sender);
    }, this.wait);
  }

  // taken: {tab: number of the last press that the server had taken when it drew the sender}.  session: which one drew
  // it; one that begins anew, after a long sleep or a restart of the server, has none of the presses taken so far.
  acknowledge({ taken, session }) {
    this.waiting = this.after(this.waiting, taken);
    if (this.session !== session) {
      this.session = session;
      this.made = [...this.waiting];
    }
    if (!this.waiting.length) clearTimeout(this.timer);
    this.say();
  }

  // What presses of a key were about that came after what a component was drawn with. Another component may be drawn
  // anew first and say that they are taken, so it is not a question of those that wait.
  since(taken, key) {
    return this.after(this.made, taken).filter((press) => press[1] === key).map((press) => press[2]);
  }

  after(some, taken) {
    const last = (taken && taken[this.tab]) || 0;
    return some.filter(([number]) => number > last);
  }

  // For tests, and for whoever looks: how many presses the server has not taken yet.
  say() {
    document.documentElement.dataset.presses = String(this.waiting.length);
  }
}

const presses = (window.headlabPresses ??= new Presses());
