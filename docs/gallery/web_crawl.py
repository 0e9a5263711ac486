"""Web crawl: follow links, each page once, at most four requests at a time in the whole cluster."""

import re
import threading
import urllib.error
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import weft


class Site(BaseHTTPRequestHandler):
    """A site to crawl, in this process: page n links to 2n and 2n + 1; page 13 is missing."""

    def do_GET(self):
        n = int(self.path.strip("/") or 1)
        self.send_response(404 if n == 13 else 200)
        self.end_headers()
        links = "".join(f'<a href="/{m}">{m}</a>' for m in (2 * n, 2 * n + 1, 1) if m < 40)
        self.wfile.write(f"<title>Page {n}</title>{links}".encode())

    def log_message(self, *args):
        pass


def fetch(url):
    """Fetch a page, on a worker; return its title and its links."""
    try:
        with (
            weft.limit("the site", 4, per_s=500),
            urllib.request.urlopen(url, timeout=10) as answer,
        ):
            text = answer.read().decode()
    except urllib.error.HTTPError as error:
        raise OSError(f"HTTP {error.code}: {urllib.parse.urlsplit(url).path}") from None
    title = re.search("<title>(.*?)</title>", text)[1]
    return title, [urllib.parse.urljoin(url, link) for link in re.findall('href="(.*?)"', text)]


server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
threading.Thread(target=server.serve_forever).start()
start = f"http://127.0.0.1:{server.server_port}/1"

with weft.Client(n_workers=2, threads_per_worker=2) as client:
    seen = {start}
    titles, failures = [], []
    retries = weft.Retries(2, delay="50 ms")
    pages = weft.as_completed([client.submit(fetch, start, retries=retries)])
    for page in pages:  # it grows while it is read
        if error := page.exception():
            failures.append(f"{error}, in {len(page.attempts())} attempts")
            continue
        title, links = page.result()
        titles.append(title)
        for url in links:
            if url not in seen:
                seen.add(url)
                pages.add(client.submit(fetch, url, retries=retries))

server.shutdown()
server.server_close()
print(f"{len(seen)} addresses, {len(titles)} pages")
print("first:", titles[0])
print("failed:", *failures)
