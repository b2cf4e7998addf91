/* The part of the log of presses that is on every page; it sends what other components could not. */

export default function mount({ data, setTriggerValue }) {
  presses.root = { setTriggerValue };
  presses.acknowledge(data.taken);
}
