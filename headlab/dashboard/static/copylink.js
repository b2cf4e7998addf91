/* A button that copies the address of the page as the browser shows it, so that it names all that is on view. */

async function copied(text) {
  if (navigator.clipboard && window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return true;
  }
  // Without https a page has no clipboard: a selected field can still be copied.
  const field = document.createElement('textarea');
  field.value = text;
  field.style.position = 'fixed';
  field.style.opacity = '0';
  document.body.append(field);
  field.select();
  const done = document.execCommand('copy');
  field.remove();
  return done;
}

/* The address with what it leaves out because it is the default now: tomorrow's default may be another one. */
function fullAddress(params) {
  const url = new URL(window.location.href);
  for (const [name, values] of Object.entries(params)) {
    if (url.searchParams.has(name)) continue;
    for (const value of values) url.searchParams.append(name, value);
  }
  return url.href;
}

export default function ({ parentElement, data }) {
  const root = parentElement.querySelector('.copy');
  const told = root.querySelector('.told');
  root.querySelector('button').onclick = async () => {
    const address = fullAddress(data.params);
    let done = false;
    try {
      done = await copied(address);
    } catch {
      done = false;
    }
    told.textContent = done ? 'Copied.' : `Copy it yourself: ${address}`;
  };
}
