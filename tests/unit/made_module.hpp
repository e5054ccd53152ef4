// SPDX-License-Identifier: MIT
#pragma once

#include <elf.h>

#include <cstring>
#include <string>

namespace p2pd::test {

/// A note as ld writes it; `size`: the length of `id` in its header.
inline std::string build_id_note(const std::string& id, Elf64_Word size) {
  const Elf64_Nhdr note{4, size, NT_GNU_BUILD_ID};
  return std::string(reinterpret_cast<const char*>(&note), sizeof note) + std::string("GNU\0", 4) + id;
}
inline std::string build_id_note(const std::string& id) {
  return build_id_note(id, static_cast<Elf64_Word>(id.size()));
}

/// A kernel module as far as its notes and its .modinfo go.
struct MadeModule {
  std::string srcversion;
  std::string notes = {};
  std::string release = "6.1.0";
  bool extended = false;  ///< section numbers in the place that large files use

  std::string bytes() const {
    const std::string names("\0.shstrtab\0.modinfo\0.note.gnu.build-id\0", 39);
    const std::string info = std::string("version=570.86.16\0vermagic=", 27) + release + " SMP" +
                             std::string("\0srcversion=", 12) + srcversion + std::string(1, '\0');
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shoff = sizeof header + notes.size() + names.size() + info.size();
    header.e_shnum = extended ? 0 : 4;
    header.e_shstrndx = extended ? SHN_XINDEX : 1;
    Elf64_Shdr sections[4]{};
    if (extended) sections[0].sh_size = 4;
    if (extended) sections[0].sh_link = 1;
    const auto place = [&](Elf64_Shdr& section, Elf64_Word name, Elf64_Word type, std::size_t at, std::size_t size) {
      section.sh_name = name;
      section.sh_type = type;
      section.sh_offset = sizeof header + at;
      section.sh_size = size;
    };
    place(sections[1], 1, SHT_STRTAB, notes.size(), names.size());
    place(sections[2], 11, SHT_PROGBITS, notes.size() + names.size(), info.size());
    place(sections[3], 20, SHT_NOTE, 0, notes.size());
    return std::string(reinterpret_cast<const char*>(&header), sizeof header) + notes + names + info +
           std::string(reinterpret_cast<const char*>(sections), sizeof sections);
  }
};

}  // namespace p2pd::test
