# SPDX-License-Identifier: MIT
"""A client of p2pd's bus, for tests: one connection, which does one thing after the other."""
import io
import os
import select
import socket
import sys
import time
import xml.etree.ElementTree as xml

sys.path.append("/usr/lib/python3/dist-packages")  # dbus_next, for a python3 that is not Debian's
from dbus_next import Message, MessageFlag, MessageType, Variant  # noqa: E402
from dbus_next._private.unmarshaller import Unmarshaller  # noqa: E402

NAME, PATH, MANAGER = "org.p2pd1", "/org/p2pd1", "org.p2pd1.Manager"
PROPERTIES, DBUS = "org.freedesktop.DBus.Properties", "org.freedesktop.DBus"


class BusError(Exception):
    """An error reply: its name, its message, and the next step where it has one."""

    def __init__(self, name, text="", next_step=""):
        super().__init__(f"{name}: {text}")
        self.name, self.text, self.next = name, text, next_step


class Client:
    """A connection to the bus that does one thing after the other, so that a test knows what it has sent and read."""

    def __init__(self, address, uid=0):
        self.socket = socket.socket(socket.AF_UNIX)
        self.serial, self.signals, self.replies, self.bytes = 0, [], {}, b""
        mine = os.geteuid(), os.getegid()
        try:  # the bus asks the kernel who connected
            os.setegid(uid)
            os.seteuid(uid)
            self.socket.connect(address.removeprefix("unix:path="))
        finally:
            os.seteuid(mine[0])
            os.setegid(mine[1])
        self.socket.sendall(b"\0AUTH EXTERNAL " + str(uid).encode().hex().encode() + b"\r\nBEGIN\r\n")
        answer = b""
        while not answer.endswith(b"\r\n"):
            piece = self.socket.recv(1)
            if not piece:
                raise ConnectionError(f"the bus does not take user {uid}")
            answer += piece
        if not answer.startswith(b"OK "):
            raise ConnectionError(answer.decode())
        self.name = self.call("Hello", interface=DBUS, destination=DBUS, path="/org/freedesktop/DBus")[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, member, signature="", *body, interface=MANAGER, destination=NAME, path=PATH, flags=MessageFlag.NONE):
        """The serial number of the call."""
        self.serial += 1
        message = Message(destination=destination, path=path, interface=interface, member=member, signature=signature,
                          body=list(body), flags=flags, serial=self.serial)
        self.socket.sendall(message._marshall())
        return self.serial

    def receive(self, timeout):
        """The next message; None where none comes in time."""
        deadline = time.monotonic() + timeout
        while True:
            if len(self.bytes) >= 16:
                order = "little" if self.bytes[:1] == b"l" else "big"
                body, fields = (int.from_bytes(self.bytes[at:at + 4], order) for at in (4, 12))
                size = 16 + (fields + 7) // 8 * 8 + body
                if len(self.bytes) >= size:
                    message, self.bytes = self.bytes[:size], self.bytes[size:]
                    return Unmarshaller(io.BytesIO(message)).unmarshall()
            if not select.select([self.socket], [], [], max(0, deadline - time.monotonic()))[0]:
                return None
            piece = self.socket.recv(1 << 18)
            if not piece:
                raise ConnectionError("the bus has closed the connection")
            self.bytes += piece

    def take(self, timeout):
        """Reads a message and keeps it where it belongs; whether one came."""
        message = self.receive(timeout)
        if message is None:
            return False
        if message.message_type is MessageType.SIGNAL:
            self.signals.append(message)
        elif message.message_type is not MessageType.METHOD_CALL:
            self.replies[message.reply_serial] = message
        return True

    def reply(self, serial, timeout=20):
        deadline = time.monotonic() + timeout
        while serial not in self.replies:
            if not self.take(deadline - time.monotonic()):
                raise TimeoutError(f"no answer in {timeout} s")
        message = self.replies.pop(serial)
        if message.message_type is MessageType.ERROR:
            raise BusError(message.error_name, *message.body)
        return message.body

    def call(self, member, *words, timeout=20, **where):
        return self.reply(self.send(member, *words, **where), timeout)

    def get(self, name, interface=MANAGER):
        return self.call("Get", "ss", interface, name, interface=PROPERTIES)[0].value

    def get_all(self):
        found = self.call("GetAll", "s", MANAGER, interface=PROPERTIES)[0]
        return {name: variant.value for name, variant in found.items()}

    def bus(self, member, *words):
        return self.call(member, *words, interface=DBUS, destination=DBUS, path="/org/freedesktop/DBus")

    def watch(self):
        """From now on signals of p2pd, and who owns its name, are kept in `signals`."""
        self.bus("AddMatch", "s", f"type='signal',sender='{NAME}'")
        self.bus("AddMatch", "s", f"type='signal',member='NameOwnerChanged',arg0='{NAME}'")

    def watch_until(self, found, timeout=30):
        """Reads signals until `found()`; False where that takes longer."""
        deadline = time.monotonic() + timeout
        while not found():
            if not self.take(deadline - time.monotonic()) and time.monotonic() >= deadline:
                return False
        return True

    def told(self, member):
        """Bodies of the signals of that name, in order."""
        return [message.body for message in self.signals if message.member == member and message.path == PATH]


def until(condition, what, timeout=20):
    """Its first true value; TimeoutError, which says `what` did not happen."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"not in {timeout} s: {what() if callable(what) else what}")
        time.sleep(0.02)


def interface_of(text):
    """The interfaces of introspection XML that are p2pd's own, normalised: what order, spaces and comments do not change."""
    def one(element):
        marks = tuple(sorted((mark.get("name"), mark.get("value")) for mark in element.findall("annotation")))
        arguments = tuple((arg.get("name"), arg.get("type"), arg.get("direction") or
                           ("out" if element.tag == "signal" else "in")) for arg in element.findall("arg"))
        return element.tag, element.get("name"), element.get("type"), element.get("access"), arguments, marks
    return {interface.get("name"): sorted((one(element) for element in interface if element.tag != "annotation"), key=repr)
            for interface in xml.fromstring(text).findall("interface")
            if not interface.get("name").startswith("org.freedesktop.")}


__all__ = ["BusError", "Client", "DBUS", "MANAGER", "MessageFlag", "NAME", "PATH", "PROPERTIES", "Variant", "interface_of", "until"]
