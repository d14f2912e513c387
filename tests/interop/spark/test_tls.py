"""Spark's reads and writes of a live cluster in TLS, at the servers' usual ports."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from tests.interop.spark.queries import OfCluster, places

TLS = {"tls": "true", "tlsVerify": "false", "accessKey": "somebody", "secretKey": "a-secret-word"}


def test_a_topic_is_written_and_read_in_tls_with_signed_requests(of_cluster: OfCluster) -> None:
    frame = of_cluster.spark.range(100).selectExpr("concat('row ', id) as body")
    options = of_cluster.options(**TLS)
    frame.write.format("rocketpy").options(**options).mode("append").save()
    of_cluster.cluster.until_dispatched()
    of_cluster.run(**TLS)
    assert {place.body for place in of_cluster.streamed()} == {b"row %d" % n for n in range(100)}
    assert of_cluster.streamed() == places(of_cluster.read())
    logged = (of_cluster.folder / "checkpoint").rglob("*")
    assert not any(b"a-secret-word" in path.read_bytes() for path in logged if path.is_file())


def test_a_certificate_that_nobody_vouches_for_is_told(of_cluster: OfCluster) -> None:
    with pytest.raises(PySparkException, match=r"certificate.*tlsCaFile") as caught:
        of_cluster.read(**{**TLS, "tlsVerify": "true"}).collect()
    assert "a-secret-word" not in str(caught.value)
