"""Decoding images of any kind to pixels."""

import io

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.pipelines import ImageDecoder


def png(pixels):
    return tf.io.encode_png(np.asarray(pixels)).numpy()


def picture(height=7, width=9, channels=3):
    random = np.random.default_rng(channels)
    return random.integers(0, 256, (height, width, channels)).astype(np.uint8)


def decoded(image_bytes, size, num_channels):
    return ImageDecoder(size, num_channels)(tf.constant([image_bytes])).numpy()[0]


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_all_kinds_of_png_become_grey_or_rgb(channels):
    pixels = picture(channels=channels)
    opaque = pixels[..., : channels - 1] if channels in (2, 4) else pixels
    rgb = np.broadcast_to(opaque, (7, 9, 3)).astype("float32")
    np.testing.assert_array_equal(decoded(png(pixels), (7, 9), 3), rgb)
    grey = decoded(png(pixels), (7, 9), 1)
    assert grey.shape == (7, 9, 1)
    if channels < 3:
        np.testing.assert_array_equal(grey, opaque)
    else:
        brightness = np.round(rgb @ np.array([0.299, 0.587, 0.114]))
        np.testing.assert_allclose(grey[..., 0], brightness, atol=1)
        assert (grey[..., 0] == brightness).mean() > 0.99


def test_sixteen_bits_a_colour_become_eight():
    pixels = picture().astype(np.uint16) * 257
    np.testing.assert_array_equal(decoded(png(pixels), (7, 9), 3), picture())


def test_jpegs_grey_coloured_and_cmyk():
    smooth = np.add.outer(np.arange(16) * 4, np.arange(24) * 5).astype(np.uint8)[..., None]
    for pixels in (smooth, np.repeat(smooth, 3, axis=-1)):
        image = tf.io.encode_jpeg(pixels, quality=95).numpy()
        for num_channels in (1, 3):
            found = decoded(image, (16, 24), num_channels)
            assert np.abs(found - smooth).max() < 8
    image_module = pytest.importorskip("PIL.Image", reason="needs pillow")
    file = io.BytesIO()
    image_module.fromarray(np.repeat(smooth, 3, axis=-1)).convert("CMYK").save(file, "jpeg")
    assert np.abs(decoded(file.getvalue(), (16, 24), 3) - smooth).max() < 12


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("graph", [True, False])
def test_jpegs_decode_exactly_as_libjpeg_does(mode, graph):
    """Pillow takes libjpeg's accurate transform; the fast one is up to 9 levels off."""
    image_module = pytest.importorskip("PIL.Image", reason="needs pillow")
    image = image_module.fromarray(picture(37, 53)).convert(mode)
    decoder = ImageDecoder((37, 53))
    decode = tf.function(decoder.__call__, autograph=False) if graph else decoder
    for subsampling, quality in ((0, 95), (2, 75)):
        file = io.BytesIO()
        image.save(file, "jpeg", quality=quality, subsampling=subsampling)
        expected = np.asarray(image_module.open(file).convert("RGB"))
        found = decode(tf.constant([file.getvalue()])).numpy()[0]
        np.testing.assert_array_equal(found, expected)


def test_resizing_antialiases_and_leaves_the_right_size_alone():
    pixels = picture(8, 8, 1)
    means = pixels.reshape(2, 4, 2, 4).mean(axis=(1, 3))
    found = decoded(png(pixels), (2, 2), 1)[..., 0]
    # Each pixel also depends on its surroundings, but mostly on its own sixteen.
    assert np.abs(found - means).max() < np.abs(pixels[::4, ::4, 0] - means).max()
    flat = np.full((5, 31, 3), 77, np.uint8)
    np.testing.assert_allclose(decoded(png(flat), (9, 4), 3), 77.0, atol=1e-4)


def test_batches_of_images_of_different_sizes_and_no_images():
    decoder = tf.function(ImageDecoder((6, 5)).__call__, autograph=False)
    mixed = [png(picture(3, 4)), tf.io.encode_jpeg(picture(30, 20)).numpy()]
    assert decoder(tf.constant(mixed)).shape == (2, 6, 5, 3)
    assert decoder(tf.constant([], tf.string)).shape == (0, 6, 5, 3)


def huge_png():
    """A file of a few bytes whose header says 60,000 x 60,000 pixels."""
    data = bytearray(png(np.zeros((1, 1, 1), np.uint8)))
    data[16:24] = (60_000).to_bytes(4, "big") * 2
    return bytes(data)


GIF = b"GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00"


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (b"", r"must be PNG or JPEG; these rows of the batch are neither:(.|\n)*1"),
        (b"no image", "must be PNG or JPEG"),
        (GIF, "must be PNG or JPEG"),
        (png(picture())[:8], "(?i)png|image"),
        (png(picture())[:60], "(?i)png"),
        (b"\xff\xd8\xff", "(?i)jpeg"),
        (tf.io.encode_jpeg(picture(20, 20)).numpy()[:200], "(?i)jpeg"),
        (huge_png(), "more than 50000000 pixels"),
    ],
)
def test_what_does_not_decode_is_refused_with_a_reason(bad, text, graph):
    decoder = ImageDecoder((4, 4))
    call = tf.function(decoder.__call__, autograph=False) if graph else decoder
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
        call(tf.constant([png(picture()), bad]))


@pytest.mark.parametrize("encode", [tf.io.encode_png, tf.io.encode_jpeg])
def test_a_file_cut_anywhere_is_refused(encode):
    image = encode(picture()).numpy()
    signature = [tf.TensorSpec([1], tf.string)]
    decode = tf.function(ImageDecoder((4, 4)).__call__, input_signature=signature, autograph=False)
    decode(tf.constant([image]))
    for length in range(0, len(image), 3):
        with pytest.raises(tf.errors.InvalidArgumentError):
            decode(tf.constant([image[:length]]))


def test_decoders_that_cannot_be():
    with pytest.raises(ValueError, match=r"num_channels=4: use 3 \(RGB\) or 1"):
        ImageDecoder((4, 4), 4)
    with pytest.raises(ValueError, match=r"image_size=\(0, 4\)"):
        ImageDecoder((0, 4))
