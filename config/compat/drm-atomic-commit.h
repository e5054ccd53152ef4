/* SPDX-License-Identifier: MIT
 *
 * The old names of struct drm_atomic_commit and its functions, which were drm_atomic_state until Linux 7.2.
 *
 * NVIDIA's conftest asks by the old name for the arguments of atomic_check(), before any header can be forced in, and
 * answers no; since Linux 5.13 it is yes. Reference: include/drm/drm_atomic.h of both.
 */
#ifndef P2PD_DRM_ATOMIC_COMMIT_H
#define P2PD_DRM_ATOMIC_COMMIT_H
#if __has_include(<linux/kconfig.h>) /* not where kbuild asks the compiler, without the kernel's headers, what it can do */

#define drm_atomic_state drm_atomic_commit
#define drm_atomic_state_alloc drm_atomic_commit_alloc
#define drm_atomic_state_init drm_atomic_commit_init
#define drm_atomic_state_clear drm_atomic_commit_clear
#define drm_atomic_state_get drm_atomic_commit_get
#define drm_atomic_state_put drm_atomic_commit_put
#define drm_atomic_state_default_clear drm_atomic_commit_default_clear
#define drm_atomic_state_default_release drm_atomic_commit_default_release

#if __has_include(<conftest/types.h>)
#include <conftest.h>
#define NV_DRM_PLANE_ATOMIC_CHECK_HAS_ATOMIC_STATE_ARG
#define NV_DRM_CRTC_ATOMIC_CHECK_HAS_ATOMIC_STATE_ARG
#endif

#endif
#endif
