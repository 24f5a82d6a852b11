// The terms of a contract and of a quota, as forms ask for them: key, label, an example.
const BOTH = [
  ['rate', 'Reserved rate', '500/s'],
  ['limit', 'Limit', '900/s'],
  ['weight', 'Weight', '4'],
  ['latency', 'Latency bound', '20ms'],
  ['percentile', 'Percentile', '95'],
  ['pending', 'Most pending', '32'],
];
const OF_NODES = [['burst', 'Burst', '64 or 4MiB'], ['share', 'Share of disk time', '25%']];
const OF_MANAGERS = [['parts', 'Over how many nodes', '2'], ['copies', 'Copies', '2']];

/** Terms that disks of a node, or of a manager, may have. A disk that is there keeps its nodes and copies. */
export function termsOf(kind, fresh = false) {
  if (kind === 'manager') return fresh ? [...BOTH, ...OF_MANAGERS] : BOTH;
  const bytes = (key) => ({ rate: ' or 20MB/s', limit: ' or 50MB/s' })[key] ?? '';
  return [...BOTH.map(([key, label, example]) => [key, label, example + bytes(key)]), ...OF_NODES];
}

export const QUOTA = [
  ['disks', 'Disks', '10'],
  ['bytes', 'Capacity', '1TB'],
  ['rate', 'Reserved rates', '5000/s'],
  ['limit', 'Limits', '20000/s'],
  ['weight', 'Weights', '100'],
  ['latency', 'Shortest latency', '5ms'],
];
