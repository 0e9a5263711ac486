"""Image batch: make thumbnails of a folder of images, and a contact sheet of them."""

from pathlib import Path

import numpy as np

import weft

# Images as plain PPM files, which need no library; with Pillow, load and save are Image.open and
# image.save.


def load(path):
    _, size, _, pixels = Path(path).read_bytes().split(b"\n", 3)
    width, height = map(int, size.split())
    return np.frombuffer(pixels, np.uint8).reshape(height, width, 3)


def save(image, path):
    height, width, _ = image.shape
    Path(path).write_bytes(b"P6\n%d %d\n255\n" % (width, height) + image.tobytes())


def make(path, seed):
    """Draw an image: a disc on a gradient. It stands for your photographs."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:240, 0:320]
    image = np.stack([x * 255 // 320, y * 255 // 240, np.full_like(x, 120)], axis=-1)
    disc = (x - rng.integers(60, 260)) ** 2 + (y - rng.integers(60, 180)) ** 2 < 45**2
    image[disc] = rng.integers(0, 255, 3)
    save(image.astype(np.uint8), path)
    return path


def thumbnail(path, factor=4):
    """Average blocks of pixels, sharpen the contrast, and save the small image."""
    image = load(path).astype(float)
    height, width, _ = image.shape
    small = image.reshape(height // factor, factor, width // factor, factor, 3).mean((1, 3))
    small = (small - small.min()) * 255 / (np.ptp(small) or 1)
    small = small.astype(np.uint8)
    save(small, Path(path).with_suffix(".thumb.ppm"))
    return small


def beside(images):
    return np.concatenate(images, axis=1)


def below(rows):
    return np.concatenate(rows, axis=0)


folder = Path.cwd()
paths = [str(folder / f"image-{i:02}.ppm") for i in range(12)]
with weft.Client(n_workers=2, threads_per_worker=1) as client:
    images = client.map(make, paths, range(12))
    thumbnails = client.map(thumbnail, images)  # each starts when its image is there
    # The thumbnails stay on the workers; rows are joined there, and only the sheet comes here.
    rows = [client.submit(beside, thumbnails[i : i + 4]) for i in range(0, 12, 4)]
    sheet = client.submit(below, rows).result()

save(sheet, "contact-sheet.ppm")
print("thumbnails:", len([*folder.glob("*.thumb.ppm")]))
print("contact sheet:", " x ".join(map(str, sheet.shape)))
print("mean colour:", sheet.mean((0, 1)).round().astype(int).tolist())
