# SPDX-License-Identifier: MIT OR GPL-2.0-or-later
# What the makefiles below src/ share: where objects go, how code that becomes part of a kernel module is compiled.
TARGET_OS ?= Linux
TARGET_ARCH ?= $(shell uname -m)
OUTPUTDIR ?= _out/$(TARGET_OS)_$(TARGET_ARCH)
OBJCOPY ?= objcopy
CC ?= cc
LD ?= ld

NV_CFLAGS := -I../../kernel-open/common/inc -Wall -Werror -O2 -ffreestanding -fno-common -fno-pic -fno-stack-protector -fno-asynchronous-unwind-tables
ifeq ($(TARGET_ARCH),x86_64)
  NV_CFLAGS += -mno-red-zone -mcmodel=kernel -mno-sse -mno-mmx -fcf-protection=none
  NV_CFLAGS += -mindirect-branch=thunk-extern -mindirect-branch-register -mfunction-return=thunk-extern
endif

define compile
	@mkdir -p $(dir $@)
	@printf ' [ %-17.17s ]  CC           %s\n' "$(MODULE)" "$<"
	@$(CC) $(NV_CFLAGS) $(CFLAGS) -c $< -o $@
endef
define link
	@printf ' [ %-17.17s ]  LD           %s\n' "$(MODULE)" "$@"
	@$(LD) -r -o $@ $^
endef
