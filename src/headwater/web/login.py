"""The login page: the one page that anybody sees. It stands alone, without the library that draws the others."""

from __future__ import annotations

REFUSED = '<p class="no" role="alert">That is not the token. It is one word, in the file that the server named.</p>'

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Log in · Headwater</title>
<style>
  :root { color-scheme: light dark;
          --ground: #f5f7f9; --card: #fff; --ink: #16222d; --soft: #55677a; --line: #d8e0e7; --mark: #0a6c96 }
  @media (prefers-color-scheme: dark) {
    :root { --ground: #0d141a; --card: #16202a; --ink: #e7eef4; --soft: #a3b3c2; --line: #2a3947; --mark: #55c3f2 }
  }
  body { margin: 0; min-height: 100vh; display: grid; place-items: center; background: var(--ground); color: var(--ink);
         font: 16px/1.5 system-ui, sans-serif }
  main { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 28px;
         width: min(26rem, 86vw) }
  h1 { margin: 0 0 4px; font-size: 22px }
  p { margin: 0 0 16px; color: var(--soft) }
  label { display: block; font-weight: 600; margin-bottom: 6px }
  input { box-sizing: border-box; width: 100%; padding: 10px; font: inherit; border: 1px solid var(--line);
          border-radius: 8px; background: transparent; color: inherit }
  button { margin-top: 14px; width: 100%; padding: 10px; font: inherit; font-weight: 600; border: 0; border-radius: 8px;
           background: var(--mark); color: var(--card); cursor: pointer }
  input:focus-visible, button:focus-visible { outline: 3px solid var(--mark); outline-offset: 2px }
  .no { color: #c2341d; font-weight: 600 }
  @media (prefers-color-scheme: dark) { .no { color: #ff9d8a } }
</style>
</head>
<body>
<main>
  <h1>Headwater</h1>
  <p>The token is in the file that <code>headwater serve</code> names when it starts; other commands
  with <code>--web</code> print a link that has it.</p>
  {error}
  <form method="post" action="/login">
    <label for="token">Token</label>
    <input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
    <button type="submit">Log in</button>
  </form>
</main>
<script>
  if (!/(^|; )headwater_theme=/.test(document.cookie)) {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    document.cookie = "headwater_theme=" + (dark ? "dark" : "light") + "; Path=/; SameSite=Strict; Max-Age=31536000";
  }
  const token = decodeURIComponent(location.hash.slice(1));
  if (token) {
    history.replaceState(null, "", location.pathname);
    document.getElementById("token").value = token;
    document.forms[0].submit();
  }
</script>
</body>
</html>
"""
