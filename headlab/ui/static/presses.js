/* What a person pressed, in order, until the server says that it has taken it. One log a tab.
   It is put before the script of each component that can be pressed: buttons, the head grid, and the root, which is on
   every page and draws nothing. A component sends the whole log, so nothing depends on which message arrives. */

const FIRST_WAIT_MS = 4000;

class Presses {
  constructor() {
    this.tab = Math.random().toString(36).slice(2);
    this.count = 0;
    this.waiting = []; // [number, key, value], not taken yet
    this.root = null;
    this.wait = FIRST_WAIT_MS;
  }

  add(sender, key, value) {
    this.count += 1;
    this.waiting.push([this.count, key, value]);
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

  // taken: {tab: number of the last press that the server has taken}.
  acknowledge(taken) {
    const last = (taken && taken[this.tab]) || 0;
    this.waiting = this.waiting.filter(([number]) => number > last);
    if (!this.waiting.length) clearTimeout(this.timer);
    this.say();
  }

  of(key) {
    return this.waiting.filter((press) => press[1] === key).map((press) => press[2]);
  }

  // For tests, and for whoever looks: how many presses the server has not taken yet.
  say() {
    document.documentElement.dataset.presses = String(this.waiting.length);
  }
}

const presses = (window.headlabPresses ??= new Presses());
