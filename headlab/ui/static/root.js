/* The part of the log of presses that is on every page; it sends what other components could not.
   It also keeps the way back and forward: streamlit makes an entry of the browser's history for every change of the
   link, and when a run that was under way ends after Back, it turns to its own page again. */

function keepHistory() {
  if (window.headlabHistory) return;
  window.headlabHistory = true;
  let moved = false; // by Back or Forward, and nothing was pressed since: no run has a reason to turn the page
  window.addEventListener('popstate', () => { moved = true; }, true);
  for (const kind of ['pointerdown', 'keydown', 'click']) window.addEventListener(kind, () => { moved = false; }, true);
  const push = window.history.pushState;
  const job = (url) => new URLSearchParams(url.search).get('job');
  window.history.pushState = function pushState(state, title, to) {
    const url = new URL(to, window.location.href);
    const turned = url.pathname !== window.location.pathname || job(url) !== job(window.location);
    if (turned && moved) return undefined;
    return turned ? push.call(this, state, title, to) : this.replaceState(state, title, to);
  };
}

export default function mount({ data, setTriggerValue }) {
  keepHistory();
  presses.root = { setTriggerValue };
  presses.acknowledge(data);
}
