// The host under test, and a browser for its pages.

import assert from "node:assert/strict";

import { Browser, Builder, By, Key, until } from "selenium-webdriver";
import chrome from "selenium-webdriver/chrome.js";

/** How long anything may take. */
export const WAIT_MAX_MS = 20_000;

/** How long a host may take to compile a package. */
const LOAD_MAX_MS = 120_000;

/** Return functions for a host: `api` sends a request, `ended` waits for a launch, `signIn` opens a page with a session. */
export function host(base, token) {
  /** Send a request to the API. */
  async function api(method, path, body) {
    const answer = await fetch(new URL(`/api/v1/${path}`, base), {
      method,
      headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
      body: body && JSON.stringify(body),
    });
    const json = await answer.json();
    assert(answer.ok, `${method} ${path}: ${JSON.stringify(json)}`);
    return json;
  }

  /** Ask until `found` returns something. */
  async function eventually(what, found, wait = WAIT_MAX_MS) {
    const until = Date.now() + wait;
    for (;;) {
      const value = await found();
      if (value) return value;
      assert(Date.now() < until, `it took too long: ${what}`);
      await new Promise((done) => setTimeout(done, 50));
    }
  }

  /** Wait until a launch has ended. */
  const ended = (launch) =>
    eventually(`the end of the launch ${launch}`, async () => {
      const row = await api("GET", `launches/${launch}`);
      return row.finished_at !== null && row;
    });

  /** Wait until the host has loaded the package `guests`. */
  const loaded = () =>
    eventually("the package", async () => {
      const packages = await api("GET", "packages");
      return packages.some((one) => one.name === "guests" && one.state === "active");
    }, LOAD_MAX_MS);

  /** Open a page and sign in. */
  async function signIn(browser, path) {
    await browser.get(new URL(path, base).href);
    await browser.findElement(By.name("token")).sendKeys(token, Key.ENTER);
    await browser.wait(until.elementLocated(By.css("nav")), WAIT_MAX_MS, "a session");
  }

  return { api, ended, eventually, loaded, signIn };
}

/** Start Chromium. */
export async function start() {
  const options = new chrome.Options();
  options.addArguments("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars");
  if (process.env.CHROMIUM) options.setChromeBinaryPath(process.env.CHROMIUM);
  const service = new chrome.ServiceBuilder(process.env.CHROMEDRIVER);
  const builder = new Builder().forBrowser(Browser.CHROME).setChromeOptions(options);
  return builder.setChromeService(service).build();
}
