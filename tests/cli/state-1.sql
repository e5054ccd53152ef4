-- SPDX-License-Identifier: MIT
-- State of schema 1 where a run waits for a reboot: step a is pending, b is fixed, and the trial boot of a is open.
BEGIN TRANSACTION;
CREATE TABLE boots(run INT, boot_id TEXT, PRIMARY KEY(run, boot_id));
INSERT INTO "boots" VALUES(1,'00000000-0000-0000-0000-000000000000');
CREATE TABLE events(id INTEGER PRIMARY KEY, time TEXT, boot_id TEXT, run INT, step TEXT, type TEXT, text TEXT);
INSERT INTO "events" VALUES(1,'2026-11-27T01:49:24Z','00000000-0000-0000-0000-000000000000',1,'','begun','test');
INSERT INTO "events" VALUES(2,'2026-11-27T01:49:24Z','00000000-0000-0000-0000-000000000000',1,'','boot','00000000-0000-0000-0000-000000000000');
INSERT INTO "events" VALUES(3,'2026-11-27T01:49:24Z','00000000-0000-0000-0000-000000000000',1,'b','fixing','B');
INSERT INTO "events" VALUES(4,'2026-11-27T01:49:25Z','00000000-0000-0000-0000-000000000000',1,'b','fixed','');
INSERT INTO "events" VALUES(5,'2026-11-27T01:49:25Z','00000000-0000-0000-0000-000000000000',1,'a','fixing','A');
INSERT INTO "events" VALUES(6,'2026-11-27T01:49:25Z','00000000-0000-0000-0000-000000000000',1,'a','fixed','');
INSERT INTO "events" VALUES(7,'2026-11-27T01:49:25Z','00000000-0000-0000-0000-000000000000',1,'a','trial','');
INSERT INTO "events" VALUES(8,'2026-11-27T01:49:25Z','00000000-0000-0000-0000-000000000000',1,'','reboot-due','takes effect with a reboot: a');
CREATE TABLE intents(id INTEGER PRIMARY KEY, run INT, kind INT, step TEXT, boot_id TEXT, closed INT DEFAULT 0);
INSERT INTO "intents" VALUES(1,1,1,'a','00000000-0000-0000-0000-000000000000',0);
CREATE TABLE runs(id INTEGER PRIMARY KEY, plan TEXT, resolved TEXT, state TEXT, failing INT, reboots INT,
                  reboot_from TEXT, reboot_due INT, result TEXT, reason TEXT, started TEXT, ended TEXT);
INSERT INTO "runs" VALUES(1,'test','{"name":"test","policy":{"attempts":2,"busy":"block","on_failure":"revert","reboot":"automatic","reboots":4},"steps":[{"check":"modprobe-options","fix":"modprobe-options","gate":"b","title":"B","with":{"module":"nvidia","options":{"NVreg_EnableMSI":1}}},{"check":"kernel-cmdline","fix":"kernel-cmdline","gate":"a","title":"A","with":{"arguments":["iommu=pt"]}}],"title":"test"}','rebooting',0,1,'00000000-0000-0000-0000-000000000000',0,'','takes effect with a reboot: a','2026-11-27T01:49:24Z','');
CREATE TABLE steps(run INT, step TEXT, status INT, attempts INT, crashes INT, applied INT, committed INT,
                   applied_boot TEXT, finding TEXT, PRIMARY KEY(run, step));
INSERT INTO "steps" VALUES(1,'a',3,1,0,1,0,'00000000-0000-0000-0000-000000000000','{"evidence":[{"source":"/proc/cmdline","value":"BOOT_IMAGE=/boot/vmlinuz-6.8.0-60-generic root=UUID=00000000-0000-0000-0000-000000000000 ro quiet splash"},{"source":"/etc/default/grub.d/zz-p2pd.cfg","value":"iommu=pt"}],"facts":{"configured":true,"conflicting":[],"missing":["iommu=pt"],"trial":false,"wanted":["iommu=pt"]},"next":"Reboot: the arguments are configured, but this boot is without them.","summary":"the kernel runs without iommu=pt","verdict":"fail"}');
INSERT INTO "steps" VALUES(1,'b',2,0,0,1,0,'00000000-0000-0000-0000-000000000000','{"evidence":[{"source":"/etc/modprobe.d/zz-p2pd.conf:2","value":"NVreg_EnableMSI=1"}],"facts":{"in_force":true,"module":"nvidia","options":{"NVreg_EnableMSI":{"configured":"1","running":"1","wanted":"1"}},"registry_dwords":{}},"next":"","summary":"module nvidia is configured with the wanted options","verdict":"pass"}');
COMMIT;
PRAGMA user_version=1;
