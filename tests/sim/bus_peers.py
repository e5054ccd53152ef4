#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bus_peers.py ADDRESS POLICY NOTES [polkit|login1]...: stand-ins for polkit and logind on a bus.

POLICY: JSON, read again for each question:
  {"allow": {ACTION: [uid...]}, "challenge": {ACTION: [uid...]}, "agent": bool, "delay_s": seconds, "never": [uid...], "error": NAME}
  Root is always allowed. "challenge" asks somebody for a password: a refusal unless the flags allow to, and then one
  too where there is no "agent". "never": who gets no answer at all.
NOTES: gets a JSON line for each call. Prints "ready" once the names are owned, and ends with its bus.

On python3-dbus-next: one package of pure Python, where python3-dbus needs python3-gi and five libraries besides.
"""
import asyncio
import json
import os
import pathlib
import sys
import time

sys.path.append("/usr/lib/python3/dist-packages")  # for a python3 that is not Debian's
from dbus_next import Message, MessageType, Variant  # noqa: E402
from dbus_next.aio import MessageBus  # noqa: E402

NEVER = 2 ** 64 - 1
LATER = object()  # no answer now, perhaps one later


class Peer:
    """Owns a name on the bus; a method NAME of it is told to `on_NAME`, which gives (signature, body)."""
    name = interface = path = ""

    def __init__(self, notes):
        self.notes = notes

    async def start(self, address):
        self.bus = await MessageBus(bus_address=address, negotiate_unix_fd=True).connect()
        self.bus.add_message_handler(self.handle)
        reply = await self.ask_bus("RequestName", "su", [self.name, 4])
        if reply.body[0] != 1:
            raise SystemExit(f"{self.name} is taken")

    async def ask_bus(self, member, signature, body):
        reply = await self.bus.call(Message(destination="org.freedesktop.DBus", path="/org/freedesktop/DBus",
                                            interface="org.freedesktop.DBus", member=member, signature=signature, body=body))
        if reply.message_type is MessageType.ERROR:
            raise RuntimeError(f"{member}: {reply.error_name}: {reply.body}")
        return reply

    def note(self, **fields):
        with open(self.notes, "a", encoding="utf-8") as file:
            file.write(json.dumps({"peer": self.name, "time": time.time(), **fields}) + "\n")

    def handle(self, message):
        if message.message_type is not MessageType.METHOD_CALL or message.path != self.path:
            return None
        if message.interface == "org.freedesktop.DBus.Properties" and message.member in ("Get", "GetAll"):
            return self.property(message)
        told = getattr(self, "on_" + message.member, None) if message.interface in (self.interface, None) else None
        if told is None:
            return None  # the library answers Peer and Introspectable, and refuses what is unknown
        try:
            answer = told(message, *message.body)
        except (TypeError, ValueError) as error:
            return Message.new_error(message, "org.freedesktop.DBus.Error.InvalidArgs", str(error))
        return True if answer is LATER else self.reply(message, *answer)

    def reply(self, message, signature="", body=(), unix_fds=()):
        return Message(message_type=MessageType.METHOD_RETURN, reply_serial=message.serial, destination=message.sender,
                       signature=signature, body=list(body), unix_fds=list(unix_fds))

    def properties(self):
        return {}

    def property(self, message):
        found = self.properties()
        if message.member == "GetAll":
            return self.reply(message, "a{sv}", [found])
        if message.body[1] in found:
            return self.reply(message, "v", [found[message.body[1]]])
        return Message.new_error(message, "org.freedesktop.DBus.Error.UnknownProperty", message.body[1])


class Polkit(Peer):
    name = "org.freedesktop.PolicyKit1"
    interface, path = "org.freedesktop.PolicyKit1.Authority", "/org/freedesktop/PolicyKit1/Authority"

    def __init__(self, notes, policy):
        super().__init__(notes)
        self.policy, self.waiting, self.uids = policy, {}, {}

    def on_CheckAuthorization(self, message, subject, action, details, flags, cancellation):
        task = asyncio.ensure_future(self.decide(message, subject, action, details, flags, cancellation))
        self.waiting[(message.sender, cancellation or message.serial)] = task
        return LATER

    def on_CancelCheckAuthorization(self, message, cancellation):
        self.note(call="CancelCheckAuthorization", cancellation=cancellation)
        task = self.waiting.pop((message.sender, cancellation), None)
        if task:
            task.cancel()
        return ()

    async def decide(self, message, subject, action, details, flags, cancellation):
        rules = json.loads(pathlib.Path(self.policy).read_text())
        kind, about = subject
        noted = {"call": "CheckAuthorization", "action": action, "subject": kind, "interactive": bool(flags & 1),
                 "details": details, "cancellation": cancellation}
        try:
            uid = await self.uid_of(kind, about)
        except (KeyError, RuntimeError) as error:
            self.note(**noted, uid=None, answer=str(error))
            self.bus.send(Message.new_error(message, self.name + ".Error.Failed", str(error)))
            return
        answer = self.answer(rules, action, uid, bool(flags & 1))
        self.note(**noted, uid=uid, answer="never" if uid in rules.get("never", ()) else answer)
        if uid in rules.get("never", ()):
            return
        await asyncio.sleep(rules.get("delay_s", 0))
        if rules.get("error"):
            self.bus.send(Message.new_error(message, rules["error"], "as the test's policy says"))
        else:
            self.bus.send(self.reply(message, "(bba{ss})", [[answer == "allow", answer == "challenge", {}]]))

    def answer(self, rules, action, uid, interactive):
        if uid == 0 or uid in rules.get("allow", {}).get(action, ()):
            return "allow"
        if uid not in rules.get("challenge", {}).get(action, ()):
            return "deny"
        return "allow" if interactive and rules.get("agent") else "challenge"

    async def uid_of(self, kind, about):
        if kind != "system-bus-name":
            raise KeyError(f"a subject of kind {kind}: it could be somebody else by now")
        name = about["name"].value
        if name not in self.uids:  # a bus gives no name twice
            self.uids[name] = (await self.ask_bus("GetConnectionUnixUser", "s", [name])).body[0]
        return self.uids[name]


class Login(Peer):
    name = "org.freedesktop.login1"
    interface, path = "org.freedesktop.login1.Manager", "/org/freedesktop/login1"

    def __init__(self, notes):
        super().__init__(notes)
        self.scheduled, self.wall, self.inhibitors = ("", NEVER), ("", False), []

    def properties(self):
        blocked = ":".join(one[0] for one in self.inhibitors if one[3] == "block")
        return {"ScheduledShutdown": Variant("(st)", list(self.scheduled)), "BlockInhibited": Variant("s", blocked),
                "PreparingForShutdown": Variant("b", False), "WallMessage": Variant("s", self.wall[0]),
                "EnableWallMessages": Variant("b", self.wall[1])}

    def on_ScheduleShutdown(self, _, kind, when):
        self.note(call="ScheduleShutdown", kind=kind, in_s=when / 1e6 - time.time(), wall=self.wall[0])
        self.scheduled = (kind, when)
        return ()

    def on_CancelScheduledShutdown(self, _):
        self.note(call="CancelScheduledShutdown", kind=self.scheduled[0])
        cancelled, self.scheduled = bool(self.scheduled[0]), ("", NEVER)
        return "b", [cancelled]

    def on_SetWallMessage(self, _, text, enable):
        self.note(call="SetWallMessage", text=text, enable=enable)
        self.wall = (text, enable)
        return ()

    def on_Inhibit(self, message, what, who, why, mode):
        """A lock that lives as long as the other end of its pipe."""
        kept, given = os.pipe()
        lock = (what, who, why, mode)
        self.note(call="Inhibit", what=what, who=who, why=why, mode=mode)
        self.inhibitors.append(lock)

        def let_go():
            asyncio.get_event_loop().remove_reader(kept)
            os.close(kept)
            self.inhibitors.remove(lock)
            self.note(call="inhibitor let go", what=what, who=who)
        asyncio.get_event_loop().add_reader(kept, let_go)
        self.bus.send(self.reply(message, "h", [0], [given])).add_done_callback(lambda _: os.close(given))
        return LATER

    def on_ListInhibitors(self, _):
        return "a(ssssuu)", [[[*one, 0, 0] for one in self.inhibitors]]

    def on_Reboot(self, _, interactive):
        self.note(call="Reboot", interactive=interactive)
        return ()

    def on_CanReboot(self, _):
        return "s", ["yes"]


async def serve(address, policy, notes, names):
    peers = {"polkit": lambda: Polkit(notes, policy), "login1": lambda: Login(notes)}
    started = [peers[name]() for name in names]
    for peer in started:
        await peer.start(address)
    print("ready", flush=True)
    await asyncio.gather(*(peer.bus.wait_for_disconnect() for peer in started), return_exceptions=True)  # the bus is gone


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:4], sys.argv[4:] or ["polkit", "login1"]))
