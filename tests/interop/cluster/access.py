"""Brokers with access control, one of each version, and certificates, outside of any cluster.

5.x has users and policies, which requests create; 4.9 reads accounts from a file. Source:
docs/design/cluster.md section 1.4, docs/design/remoting.md section 5.
"""

from __future__ import annotations

import json
import ssl
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.interop.cluster.connection import Connection, Keys
from tests.interop.cluster.messages import GROUP
from tests.interop.cluster.servers import LOOPBACK, BrokerSpec
from tests.interop.rocketmq import V4

# 4.9 refuses names and secrets of six letters or less.
ADMIN = Keys("administrator", "administrators-secret")
# Users that the fixtures give different rights on GUARDED_TOPIC.
WRITER = Keys("the-writer", "writers-secret")
READER = Keys("the-reader", "readers-secret")
STRANGER = Keys("a-stranger", "strangers-secret")
GUARDED_TOPIC = "guarded"

_CREATE_USER, _CREATE_ACL = 3001, 3006
_AUTH = "org.apache.rocketmq.auth"


@dataclass(frozen=True)
class Certificates:
    """An authority that signed the server's certificate, which is for LOOPBACK."""

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> Certificates:
        """Creates a key and a certificate that is its own authority."""
        folder.mkdir(parents=True, exist_ok=True)
        made = cls(folder)
        subject = ("-subj", "/CN=rocketpy-tests", "-addext", f"subjectAltName=IP:{LOOPBACK}")
        files = ("-keyout", str(made.key), "-out", str(made.certificate))
        kind = ("-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
        subprocess.run(["openssl", "req", *kind, *files, *subject], check=True, capture_output=True)
        return made

    @property
    def key(self) -> Path:
        """The server's private key."""
        return self.folder / "key.pem"

    @property
    def certificate(self) -> Path:
        """The server's certificate, which clients trust."""
        return self.folder / "certificate.pem"

    @property
    def system_properties(self) -> dict[str, str]:
        """System properties of a server that speaks TLS only, with this certificate."""
        return {
            "tls.server.mode": "enforcing",
            "tls.test.mode.enable": "false",
            "tls.server.keyPath": str(self.key),
            "tls.server.certPath": str(self.certificate),
        }

    def trusting(self) -> ssl.SSLContext:
        """Returns a context for clients that trust this authority alone."""
        return ssl.create_default_context(cafile=str(self.certificate))


def unverified() -> ssl.SSLContext:
    """Returns a context for clients that accept any certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def guarded_broker(system_properties: Mapping[str, str]) -> BrokerSpec:
    """Returns a broker of 5.x that permits requests of ADMIN alone, until users are created."""
    admin = {"username": ADMIN.access_key, "password": ADMIN.secret_key}
    inner = {"accessKey": ADMIN.access_key, "secretKey": ADMIN.secret_key}
    providers = {
        f"{kind}Provider": f"{_AUTH}.{kind}.provider.Default{kind.title()}Provider"
        for kind in ("authentication", "authorization")
    }
    metadata = {
        f"{kind}MetadataProvider": f"{_AUTH}.{kind}.provider.Local{kind.title()}MetadataProvider"
        for kind in ("authentication", "authorization")
    }
    conf: dict[str, object] = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        **providers,
        **metadata,
        "initAuthenticationUser": json.dumps(admin),
        "innerClientAuthenticationCredentials": json.dumps(inner),
    }
    return BrokerSpec("broker-guarded", conf=conf, system_properties=system_properties)


def create_user(admin: Connection, keys: Keys, rights: Mapping[str, Sequence[str]]) -> None:
    """Creates a user of 5.x; `rights` are actions by resource, like `Topic:T`."""
    user = {"username": keys.access_key, "password": keys.secret_key, "userType": "Normal"}
    _order(admin, _CREATE_USER, {"username": keys.access_key}, user)
    subject = f"User:{keys.access_key}"
    entries = [
        {"resource": resource, "actions": list(actions), "decision": "Allow"}
        for resource, actions in rights.items()
    ]
    if entries:
        policy = {"policyType": "Custom", "entries": entries}
        acl = {"subject": subject, "policies": [policy]}
        _order(admin, _CREATE_ACL, {"subject": subject}, acl)


def guarded_broker_of_4_9() -> BrokerSpec:
    """Returns a broker of 4.9 with the accounts ADMIN, WRITER, READER and STRANGER."""
    rights = {WRITER: f"{GUARDED_TOPIC}=PUB", READER: f"{GUARDED_TOPIC}=SUB", STRANGER: ""}
    lines = [*_account(ADMIN, is_admin=True)]
    for keys, right in rights.items():
        lines += _account(keys)
        lines += [f"    topicPerms: ['{right}']", f"    groupPerms: ['{GROUP}=SUB']"] * bool(right)
    accounts = "\n".join(["globalWhiteRemoteAddresses: []", "accounts:", *lines, ""])
    files = {"conf/plain_acl.yml": accounts}
    return BrokerSpec("broker-4-guarded", version=V4, conf={"aclEnable": "true"}, files=files)


def _account(keys: Keys, *, is_admin: bool = False) -> list[str]:
    return [
        f"  - accessKey: {keys.access_key}",
        f"    secretKey: {keys.secret_key}",
        f"    admin: {str(is_admin).lower()}",
        "    defaultTopicPerm: DENY",
        "    defaultGroupPerm: DENY",
    ]


def _order(admin: Connection, code: int, fields: Mapping[str, str], body: object) -> None:
    answer = admin.ask_plainly(code, fields, json.dumps(body).encode())
    assert answer.code == 0, (code, answer.code, answer.remark)
