// SPDX-License-Identifier: MIT
// Nothing private is in a record, in a report of the same machine, or in a report of the record: a secret is planted at
// each place of each file that a record takes.
#include <random>

#include "machine/boot/kernel_arguments.hpp"
#include "odd_machine.hpp"
#include "record/redact.hpp"
#include "report/document.hpp"
#include "report/page.hpp"

using namespace p2pd;
using namespace p2pd::test;
using nlohmann::json;

namespace {

/// A text that is added to a file. Its secrets are the words that begin with "Zq", or `secret`.
struct Planted {
  const char* file;
  const char* text;
  const char* secret = nullptr;
};

constexpr Planted kPlanted[] = {
    // the kernel's arguments
    {"proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz-6.1.0-37-amd64 ro quiet iommu=pt pci=realloc=off "},
    {"proc/cmdline", "rd.iscsi.password=Zq01 luks.key=/Zq02:LABEL=Zq03 systemd.set_credential=db:Zq04 "},
    {"proc/cmdline", "systemd.setenv=API_KEY=Zq05 token=Zq06 BOOTIF=01-52-54-00-ab-cd-01 ", "52-54-00-ab-cd-01"},
    {"proc/cmdline", "netroot=iscsi:@192.0.2.1::3260::iqn.2001-04.com.Zq07:disk rd.iscsi.initiator=iqn.1993-08.Zq08 "},
    {"proc/cmdline", "root=/dev/mapper/Zq09-root rd.lvm.lv=Zq10/root rd.luks.name=5b694366=Zq11 "},
    {"proc/cmdline", "dyndbg=\"file Zq12 +p; Zq13\" \"quoted=Zq14 Zq15\" wifi.Zq16key=Zq17 -- Zq18 --pw Zq19\n"},
    {"etc/kernel/cmdline", "root=LABEL=Zq20 ro inst.ks=nfs:Zq21:/ks\n"},
    // GRUB
    {"etc/default/grub", "# the password of the console is Zq22\nGRUB_DEFAULT=\"Zq23 rescue\"\n"},
    {"etc/default/grub", "GRUB_CMDLINE_LINUX=\"quiet tok=Zq24 key=\\\"Zq25 Zq26\\\"\" # Zq27\n"},
    {"etc/default/grub", "GRUB_CMDLINE_XEN='a=Zq28'\"Zq29\"\nexport API_KEY=Zq30 PW='Zq31'\n"},
    {"etc/default/grub", "if [ -e /Zq32 ]; then curl -u me:Zq33 Zq34; fi\nX=`cat /Zq35`\n"},
    {"etc/default/grub.d/own.cfg", "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX a=Zq36 ${X:-Zq37}\"\nM='two\nZq38\n'\n"},
    {"boot/grub/custom.cfg", "# Zq39\nmenuentry \"Zq40's rescue\" --users Zq41 --id Zq42 {\n search --label Zq43\n"},
    {"boot/grub/custom.cfg", " echo 'Zq44'\n linux /boot/vmlinuz-6.1.0-37-amd64 ro password=Zq45 x=\"Zq46 Zq47\"\n}\n"},
    {"boot/grub/custom.cfg", "set superusers=\"Zq48\"\npassword_pbkdf2 Zq48 grub.pbkdf2.Zq49\nset Zq50x=Zq51\n"},
    {"boot/grub/grubenv", "# GRUB Environment Block\nsaved_entry=Zq52 box\nwifi_key=Zq53\n#####"},
    // modprobe, depmod, modules-load
    {"etc/modprobe.d/own.conf", "# Zq54\noptions cifs auth=Zq55 \"key=Zq56 Zq57\"\noptions nvidia NVreg_X=\"1\"\n"},
    {"etc/modprobe.d/own.conf", "install wg0 TOKEN=Zq58 /usr/local/bin/up --psk Zq59; modprobe -i wg0\n"},
    {"etc/modprobe.d/own.conf", "alias Zq60 Zq61\nremove wg0 curl https://x/Zq62\nsoftdep wg0 pre: a\nbogus Zq63\n"},
    {"etc/modprobe.d/own.conf", "options nvidia NVreg_A=/home/Zq146/x NVreg_B=https://me:Zq147@Zq148.corp/Zq149\n"},
    {"etc/depmod.d/own.conf", "# Zq64\nsearch Zq65 updates built-in\nexternal * /srv/Zq66\noverride ext4 * Zq67\n"},
    {"etc/modules-load.d/own.conf", "# Zq68\nvfio-pci\n"},
    // guests of Proxmox VE
    {"etc/pve/lxc/105.conf",
     "hostname: Zq160\ndev0: /dev/nvidia0,gid=Zq161\ndev1: /dev/Zq162\nmp0: /Zq163,mp=/dev/nvidia\n"},
    {"etc/pve/lxc/105.conf",
     "lxc.mount.entry: /dev/nvidia1 dev/Zq164 none bind\n#Zq165\n[Zq166]\ndev2: /dev/nvidiaZq167\n"},
    {"etc/pve/qemu-server/100.conf",
     "name: Zq168\nhostpci0: 0000:01:00,romfile=Zq169\nhostpci1: mapping=Zq170,pcie=1\nargs: Zq171\n"},
    // systemd
    {"etc/systemd/system/nvidia-persistenced.service.d/own.conf",
     "# Zq69\n[Service]\nEnvironment=TOKEN=Zq70 \"B=Zq71\"\nEnvironmentFile=/home/Zq72/env\nExecStart=\n"},
    {"etc/systemd/system/nvidia-persistenced.service.d/own.conf",
     "ExecStart=/usr/bin/nvidia-persistenced --user Zq73 --token=Zq74 \\\n  --more Zq75\nExecStartPost=/Zq76\n"},
    {"lib/systemd/system/nvidia-persistenced.service", "[Unit]\nDescription=of Zq77\n"},
    // apt, dpkg
    {"etc/apt/apt.conf.d/99own", "Acquire::http::Proxy \"http://me:Zq78@Zq79.corp:3128/\";\n// Zq80\n"},
    {"etc/apt/apt.conf.d/99own", "Unattended-Upgrade::Mail \"Zq81@x.y\"; APT::Periodic::Zq82x \"Zq83\";\n"},
    {"etc/apt/apt.conf.d/99own", "Unattended-Upgrade::Origins-Pattern { \"site=Zq84.corp\"; };\n#clear Zq85;\n"},
    {"etc/apt/preferences.d/own", "Explanation: Zq86\nPackage: a\nPin: origin \"Zq87.corp\"\nPin-Priority: 1\n Zq88\n"},
    {"var/lib/dpkg/status", "\nPackage: own\nStatus: install ok installed\nVersion: 1\nMaintainer: Zq89 <a@b>\n"},
    {"var/lib/dpkg/status", "Architecture: amd64\nDescription: of\n Zq90 inside\nConffiles:\n /etc/Zq91 0\n\n"},
    // other files
    {"etc/environment", "PATH=/opt/Zq150\nexport NCCL_P2P_DISABLE=1 TOKEN=Zq151 # Zq152\nWANDB_API_KEY=Zq153\n"},
    {"etc/profile.d/own.sh", "# Zq154\nexport NCCL_P2P_LEVEL='SYS' K='Zq155'; curl -u me:Zq156 x\n"},
    {"etc/security/pam_env.conf", "NCCL_P2P_DISABLE DEFAULT=1 OVERRIDE=@{Zq157}\nSECRET DEFAULT=Zq158\n"},
    {"etc/systemd/system.conf.d/own.conf", "[Manager]\nDefaultEnvironment=NCCL_P2P_DISABLE=1 KEY=Zq159\n"},
    {"etc/nccl.conf", "# Zq92\nNCCL_SOCKET_IFNAME=Zq93\nNCCL_P2P_LEVEL=SYS\nWANDB_API_KEY=Zq94\n"},
    {"etc/os-release", "ACME_TOKEN=\"Zq95\"\n# Zq96\n"},
    {"usr/lib/os-release", "SUPPORT_URL=\"https://Zq97.corp/\"\n"},
    {"boot/config-6.1.0-37-amd64", "CONFIG_CMDLINE=\"key=Zq98\"\nCONFIG_DEFAULT_HOSTNAME=\"Zq99\"\n# Zq100\n"},
    {"boot/config-6.1.0-37-amd64", "CONFIG_MODULE_SIG_KEY=\"/srv/Zq101.pem\"\n"},
    {"proc/version", "Linux version 6.1.0-37-amd64 (Zq102 doe@Zq103) (gcc-12 (Debian 12.2.0-14) 12.2.0) #1 SMP\n"},
    {"proc/self/mountinfo",
     "27 24 253:0 / /var rw - ext4 /dev/mapper/Zq104-var rw\n28 24 0:5 / /usr rw - zfs Zq105/r rw\n"},
    {"proc/self/mountinfo", "29 24 0:4 / /boot rw - cifs //Zq106/share$ rw,username=Zq107\n"},
    {"etc/kernel/postinst.d/dkms-p2pd", "#!/bin/sh\n# Written by p2pd\ncurl -H 'Authorization: Zq108'\n"},
    {"etc/passwd", "zqperson:x:1000:1000:Zq Person,,,:/home/zqperson:/bin/sh\n", "zqperson"},
    {"etc/modprobe.d/zqperson-gpu.conf", "blacklist nouveau\n"},
    {"etc/default/grub.d/99-zqhost.cfg", "\n", "zqhost"},
    {"proc/sys/kernel/hostname", "zqhost\n"},
    {"etc/machine-id", "0f1e2d3c4b5a69788796a5b4c3d2e1f0\n", "0f1e2d3c4b5a6978"},
    {"proc/cmdline", " initrd=\\0f1e2d3c4b5a69788796a5b4c3d2e1f0\\6.1\\initrd"},
    // the kernel's log
    {"dev/kmsg", "6,2,0,-;Command line: ro token=Zq109 quiet\n"},
    {"dev/kmsg", "6,3,0,-;CIFS: Attempting to mount \\\\\\\\Zq110\\\\share of Zq111\n"},
    {"dev/kmsg", "6,4,0,-;NFS: server Zq112.corp not responding, still trying\n"},
    {"dev/kmsg", "6,5,0,-;wlan0: associate with AP (SSID='Zq113 guest') 52:54:00:ab:cd:02\n", "52:54:00:ab:cd:02"},
    {"dev/kmsg", "6,6,0,-;scsi host6: iSCSI Initiator iqn.1993-08.org.Zq114:01\n"},
    {"dev/kmsg", "6,7,0,-;usb 1-1: SerialNumber: Zq115\n6,8,0,-;usb 1-1: Product: Zq116's phone\n"},
    {"dev/kmsg", "4,9,0,-;Zq117[77]: segfault at 0 ip 0 sp 0 error 4 in Zq118.so[7f+1]\n"},
    {"dev/kmsg", "3,10,0,-;Out of memory: Killed process 77 (Zq119) total-vm:1kB\n"},
    {"dev/kmsg", "6,11,0,-;oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/kubepods/Zq120,task=Zq121,pid=7,uid=1\n"},
    {"dev/kmsg", "3,12,0,-;NVRM: Xid (PCI:0000:01:00): 31, pid=77, name=Zq122 job, a, Ch 00000008, intr 00000000\n"},
    {"dev/kmsg", "3,13,0,-;NVRM: Xid (PCI:0000:01:00): 43, pid=77, name=a, Zq123, Ch 00000008\n"},
    {"dev/kmsg", "3,14,0,-;NVRM: API mismatch: the client 'Zq124 x' (pid 7)\\x0aNVRM: has the version 1.\\x0aZq125\n"},
    {"dev/kmsg", "4,15,0,-;Lockdown: Zq126 a: unsigned module loading is restricted; see man kernel_lockdown.7\n"},
    {"dev/kmsg", "6,16,0,-;EXT4-fs (dm-1): mounted filesystem Zq127-home; device-mapper: crypt: Zq128\n"},
    {"dev/kmsg", "6,17,0,-;audit: type=1400 comm=\"Zq129\" name=\"/srv/Zq130\" DST=203.0.113.9\n", "203.0.113.9"},
    {"dev/kmsg", "6,18,0,-;systemd[1]: Hostname set to <Zq131>.\n SUBSYSTEM=Zq132\n12,19,0,-;Zq133 logs\n"},
    {"var/log/p2pd/driver-build-1.log", "0.1.0: x\nmake: Zq134\nerror: /home/Zq135/x.c:1: Zq136\n"},
};

constexpr char kSmi[] =
    "GPU 00000000:01:00.0\n    Product Name                          : NVIDIA GeForce RTX 4090\n"
    "    Serial Number                         : 1653724064193\n"
    "    vGPU Software Licensed Product\n        License Server                    : Zq140.corp\n"
    "    FB Memory Usage\n        Total                             : 24564 MiB\n"
    "    Processes\n        Process ID                        : 77\n"
    "            Name                          : python Zq141\n";

/// Words of `text` that begin with "Zq" and a digit, without what is around them.
void add_secrets(const std::string& text, std::vector<std::string>& secrets) {
  for (std::size_t at = text.find("Zq"); at != std::string::npos; at = text.find("Zq", at + 1)) {
    const std::size_t end = text.find_first_not_of("0123456789", at + 2);
    if (end > at + 2) secrets.push_back(text.substr(at, end - at));
  }
}

/// Names that stay: an argument, a directive or an option of any name shows that it is there.
bool is_name(std::string_view secret) {
  constexpr std::string_view kNames[] = {"Zq16", "Zq50", "Zq82"};
  return std::ranges::find(kNames, secret) != std::end(kNames);
}

struct PlantedMachine : OddMachine {
  PlantedMachine() {
    std::filesystem::remove(at / "proc/cmdline");
    for (const Planted& one : kPlanted) {
      file(one.file, (std::filesystem::exists(at / one.file) ? text(one.file) : "") + one.text);
      add_secrets(one.text, secrets);
      if (one.secret != nullptr) secrets.emplace_back(one.secret);
    }
    answer("smi", {"nvidia-smi", "-q"}, kSmi, "Zq142: cannot open display of Zq143\n");
    answer("topo", {"nvidia-smi", "topo", "-m"}, "GPU0\t X \n\nNIC Legend:\n\n  NIC0: Zq144\n", "");
    for (const char* at_least : {kSmi, "Zq142 Zq143 Zq144"}) add_secrets(at_least, secrets);
    secrets.emplace_back("1653724064193");
    link("etc/systemd/system/zqperson.target.wants/nvidia-persistenced.service", "/home/Zq145/x.service");
    link("var/lib/dkms/nvidia/570.86.16/source", "/home/Zq145/nvidia");
    std::erase_if(secrets, is_name);
    std::ranges::sort(secrets);
    secrets.erase(std::unique(secrets.begin(), secrets.end()), secrets.end());
  }
  void answer(const std::string& name, const nlohmann::json& argv, const std::string& output,
              const std::string& errors) const {
    file("commands/" + name + ".json",
         nlohmann::json{{"argv", argv}, {"status", 0}, {"output", output}, {"errors", errors}}.dump());
  }

  std::vector<std::string> secrets = {"Zq145"};
};

/// The report of the machine in `directory`: its facts, and what every check finds there.
json report_of(const std::filesystem::path& directory) {
  const Root root = Root::open(directory).value();
  RecordedRunner runner(root);
  const Host host(root, runner);
  ctl::Sources sources;
  sources.machine = ctl::machine_facts(host);
  for (const Probe& probe : probes()) sources.diagnosis["steps"].push_back(look(probe, directory));
  json document = ctl::report_document(sources);
  document["findings"] = sources.diagnosis;  // the page shows some; what is on none has to be clean, too
  ctl::redact(document, identity_of(host));
  return document;
}

std::vector<std::string> found_in(const std::string& text, const std::vector<std::string>& secrets) {
  std::vector<std::string> found;
  for (const std::string& secret : secrets) {
    std::size_t at = text.find(secret);
    while (at != std::string::npos && at + secret.size() < text.size() && secret.starts_with("Zq") &&
           std::isdigit(static_cast<unsigned char>(text[at + secret.size()])) != 0)
      at = text.find(secret, at + 1);  // "Zq10" is in "Zq104"
    if (at != std::string::npos) found.push_back(secret);
  }
  return found;
}

}  // namespace

TEST_CASE("private: of secrets in every file that a record takes none is in the record or a report") {
  const PlantedMachine machine;
  CHECK(machine.secrets.size() >= 60);
  const Root root = Root::open(machine.at).value();
  RecordedRunner runner(root);
  const MachineRecord made = record_machine(Host(root, runner), "copy").value();
  CHECK(found_in(to_text(made), machine.secrets) == std::vector<std::string>());
  const TemporaryDirectory directory;
  REQUIRE(unpack(made, directory / "copy"));
  for (const std::filesystem::path& where : {machine.at, std::filesystem::path(directory / "copy")}) {
    const json document = report_of(where);
    CHECK(found_in(document.dump(), machine.secrets) == std::vector<std::string>());
    CHECK(found_in(ctl::report_page(document), machine.secrets) == std::vector<std::string>());
  }
}

TEST_CASE("private: a record keeps what checks read beside the secrets") {
  const PlantedMachine machine;
  const TemporaryDirectory directory;
  record(machine.at, directory / "copy");
  for (const Probe& probe : probes()) {
    INFO(probe.id);
    const json there = look(probe, directory / "copy"), here = look(probe, machine.at);
    CHECK(there["verdict"] == here["verdict"]);
  }
}
