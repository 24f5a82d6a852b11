// What the server would answer to a form as it is written: asked a moment after the last key, the newest answer stands.
import { ask } from './live.svelte.js';

const PAUSE = 350;

export class Trial {
  answer = $state(null);
  problem = $state('');
  done = $state('');
  #timer = 0;
  #asked = 0;

  /** Asks `path` what `body()` would answer; nothing where that is null. */
  soon(path, body) {
    this.problem = '';
    this.done = '';
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#now(path, body()), PAUSE);
  }

  async #now(path, body) {
    const turn = ++this.#asked;
    if (body === null) {
      this.answer = null;
      return;
    }
    try {
      const answer = await ask(path, 'POST', body);
      if (turn === this.#asked) this.answer = answer;
    } catch (failure) {
      if (turn === this.#asked) [this.answer, this.problem] = [null, failure.message];
    }
  }

  /** Forgets what was asked; what is under way comes to nothing. */
  clear() {
    clearTimeout(this.#timer);
    this.#asked += 1;
    [this.answer, this.problem] = [null, ''];
  }
}
