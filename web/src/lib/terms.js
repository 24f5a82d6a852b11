// The terms that forms ask for: key, label, an example. Those of contracts come with the page's data, from henge-core's table.

/** Terms that disks may have here. What is said when a disk is made, and stays, is asked for then alone; a tenant is not asked for what
 * the administrator gives. */
export function termsOf(about, viewer, fresh = false) {
  const asked = (about.terms ?? []).filter((term) => (fresh || !term.fresh) && !(viewer?.tenant && term.given));
  return asked.map(({ key, label, example }) => [key, label, example]);
}

export const QUOTA = [
  ['disks', 'Disks', '10'],
  ['bytes', 'Capacity', '1TB'],
  ['rate', 'Reserved rates', '5000/s'],
  ['limit', 'Limits', '20000/s'],
  ['weight', 'Weights', '100'],
  ['latency', 'Shortest latency', '5ms'],
  ['burst', 'Bursts', '64'],
  ['share', 'Shares of disk time', '50%'],
];
