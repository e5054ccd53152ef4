// SPDX-License-Identifier: MIT OR GPL-2.0-or-later
/* The override that a peer-to-peer build compiles in; a build as released has none. */
#include "nv-kernel.h"

#define P2P_OVERRIDE 0x00

unsigned int nv_p2p_override(void)
{
	return P2P_OVERRIDE;
}
