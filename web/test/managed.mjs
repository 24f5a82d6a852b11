// A manager's page: without nodes, then with one; admission as one types, secrets that are shown once, tenants and their quotas.
import { check, until } from './check.mjs';

export async function managed({ open, looks }) {
  const page = await open();
  const says = (where, text) => until(async () => (await page.locator(where).innerText()).includes(text));
  const enter = async (base, token) => {
    await page.goto(`${base}/`);
    await page.fill('#token', token);
    await page.getByRole('button', { name: 'Log in' }).click();
  };

  await enter(process.env.HENGE_LONELY, process.env.HENGE_LONELY_TOKEN.trim());
  check('a manager without nodes says what to write at a node', (await says('main', 'No node has come yet')) === true);
  await looks(page, 'lonely');

  const base = process.env.HENGE_MANAGED;
  await page.context().clearCookies();
  await enter(base, process.env.HENGE_MANAGED_TOKEN.trim());
  check('with a node it says how to make a disk', (await says('main', 'Your first disk')) === true);
  await page.getByRole('link', { name: 'New disk' }).click();
  await page.getByLabel('Name').fill('db');
  await page.getByLabel('Capacity').fill('1GB');
  await page.getByLabel('Reserved rate').fill('5000/s');
  check('too much is refused with what would fit', (await says('form.new', 'What would fit')) === true, await page.locator('form.new .answer').innerText());
  await page.getByLabel('Reserved rate').fill('200/s');
  await page.getByLabel('Limit').fill('400/s');
  await page.getByLabel('Tenant').fill('ann');
  await page.getByLabel('Who may attach by NBD').fill('anyone');
  check('what fits says where it would lie', (await says('form.new', 'on n1/ssd')) === true, await page.locator('form.new .answer').innerText());
  await looks(page, 'managed-new');
  await page.getByRole('button', { name: 'Make the disk' }).click();
  check('it is made', (await says('h1', 'Disk ann.db is there')) === true, await page.locator('form.new').innerText().catch(() => ''));
  const told = await page.locator('main').innerText();
  check('its secrets are shown', /CHAP secret/.test(told) && /--dhchap-secret DHHC-1:00:/.test(told));
  await looks(page, 'managed-made');
  await page.getByLabel('I have copied the secrets').check();
  await page.getByRole('link', { name: 'Go to the disk' }).click();
  check('the disk is there', (await until(async () => (await page.locator('h1').innerText()) === 'ann.db')) === true);
  check('the secrets are not shown again', (await says('main', 'The secrets were shown')) === true && !(await page.locator('main').innerText()).includes('DHHC-1:00:'));

  await page.getByRole('link', { name: 'Tenants' }).click();
  check('its tenant is there with what it has', (await says('section[aria-label="Tenant ann"]', '400/s')) === true, await page.locator('main').innerText());
  await page.getByRole('button', { name: 'Change the quota' }).click();
  await page.getByLabel('Disks').first().fill('2');
  await page.getByLabel('Capacity').first().fill('4GB');
  await page.getByRole('button', { name: 'Set the quota' }).first().click();
  check('used and allowed have one unit', (await says('section[aria-label="Tenant ann"]', '1 GB of 4 GB')) === true, await page.locator('section[aria-label="Tenant ann"]').innerText());
  check('a quota is set', (await says('section[aria-label="Tenant ann"]', '1 of 2')) === true, await page.locator('section[aria-label="Tenant ann"]').innerText());
  await looks(page, 'tenants');
  const other = page.getByLabel('Its name');
  await other.fill('bob');
  await page.getByLabel('Capacity').last().fill('many');
  await page.getByRole('button', { name: 'Set the quota' }).last().click();
  check('a wrong quota says why', (await until(async () => /no\s+.*bytes/s.test(await page.locator('main').innerText()))) === true);
  await page.getByLabel('Capacity').last().fill('1TB');
  await page.getByRole('button', { name: 'Set the quota' }).last().click();
  check('another tenant is there', (await until(async () => (await page.locator('section[aria-label="Tenant bob"]').count()) === 1)) === true);
  await page.close();
}
