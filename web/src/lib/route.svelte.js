// Where we are: #/disk/web, #/node/n1, #/new, #/tenants, #/compare, #/events; anything else is the overview.

export const route = $state({ page: 'overview', name: '' });

function read() {
  const [, page = '', ...rest] = location.hash.split('/');
  const known = ['disk', 'node', 'new', 'tenants', 'compare', 'events'];
  let name = rest.join('/');
  try {
    name = decodeURIComponent(name);
  } catch {
    // Not one of our links; no disk has such a name.
  }
  route.page = known.includes(page) ? page : 'overview';
  route.name = name;
}

export const link = (page, name = '') => `#/${page}${name ? `/${encodeURIComponent(name)}` : ''}`;

addEventListener('hashchange', () => {
  read();
  scrollTo(0, 0);
  document.getElementById('main')?.focus({ preventScroll: true });
});
read();
