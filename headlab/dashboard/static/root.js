/* The part of the log of presses that is on every page; it sends what other components could not.
   It also keeps the way back and forward: streamlit makes an entry of the browser's history for every change of the
   link, and when a run that was under way ends after Back, it turns to its own page again. Before it turns a page it
   writes the new page's link over the old page's, so that Back would show another view than was left. */

function keepHistory() {
  if (window.headlabHistory) return;
  window.headlabHistory = true;
  let moved = false; // by Back or Forward, and nothing was pressed since: no run has a reason to turn the page
  window.addEventListener('popstate', () => { moved = true; }, true);
  let left = new URL(window.location); // as it was at the last press
  for (const kind of ['pointerdown', 'keydown', 'click']) {
    window.addEventListener(kind, () => {
      moved = false;
      left = new URL(window.location);
    }, true);
  }
  const push = window.history.pushState;
  const job = (url) => new URLSearchParams(url.search).get('job');
  window.history.pushState = function pushState(state, title, to) {
    const url = new URL(to, window.location.href);
    const turned = url.pathname !== window.location.pathname || job(url) !== job(window.location);
    if (turned && moved) return undefined;
    const here = window.location.pathname;
    if (url.pathname !== here && left.pathname === here) this.replaceState(this.state, '', left);
    return turned ? push.call(this, state, title, to) : this.replaceState(state, title, to);
  };
}

/* The page that a person turned to, until it is drawn. Streamlit takes two requests that wait for one, with the page of
   the later: that of a timer, made while the old page was still there, takes the turn back. So it is asked for again. */
class Turn {
  constructor() {
    this.wanted = null;
    window.addEventListener('popstate', () => this.begin(this.page(window.location), null), true);
    window.addEventListener('pointerdown', (event) => this.linkIn(event), true);
    window.addEventListener('click', (event) => {
      const link = this.linkIn(event);
      const elsewhere = event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0;
      if (link && !elsewhere) this.begin(this.page(new URL(link.href)), link);
    }, true);
  }

  linkIn(event) {
    const link = event.composedPath().find((node) => node.matches?.(LINKS));
    return link && this.withAddress(link);
  }

  /* Streamlit gives a link to the first page an empty address, which is that of whatever page one is on. */
  withAddress(link) {
    if (link.getAttribute('href') === '') {
      const { pathname } = window.location;
      link.href = this.page({ pathname }) ? pathname.slice(0, pathname.lastIndexOf('/') + 1) : pathname;
    }
    return link;
  }

  page({ pathname }) {
    const last = pathname.split('/').pop();
    return this.pages?.includes(last) ? last : '';
  }

  begin(page, link) {
    Object.assign(this, { wanted: page, link, wait: FIRST_WAIT_MS });
    this.later();
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      if (this.wanted === null || this.wanted === this.drawn) return;
      const link = this.link?.isConnected ? this.link : this.linkOf(this.wanted);
      this.wait *= 2;
      const { wait, wanted } = this;
      link?.click(); // which begins a turn of its own
      Object.assign(this, { wait, wanted });
      this.later();
    }, this.wait);
  }

  linkOf(page) {
    const links = [...document.querySelectorAll(LINKS)].map((link) => this.withAddress(link));
    return links.find((link) => this.page(new URL(link.href)) === page);
  }

  draw({ page, pages }) {
    Object.assign(this, { drawn: page, pages });
    if (page === this.wanted) this.wanted = null;
  }
}

const LINKS = 'a[data-testid="stPageLink-NavLink"]';

export default function mount({ data, setTriggerValue }) {
  keepHistory();
  (window.headlabTurn ??= new Turn()).draw(data);
  presses.root = { setTriggerValue };
  presses.acknowledge(data);
}
