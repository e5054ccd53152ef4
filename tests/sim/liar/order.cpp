// SPDX-License-Identifier: MIT
// Contexts, streams and events: lies about what has ended, and when.
#include <unistd.h>

#include <cstdio>

#include "tests/sim/liar/liar.hpp"

namespace p2pd::liar {

CUresult init(unsigned flags) {
  if (told().known) return real().cuInit(flags);
  std::fputs("the lying CUDA driver: P2PD_LIE is not a lie\n", stderr);
  return CUDA_ERROR_UNKNOWN;
}

CUresult context_retain(CUcontext* context, CUdevice device) {
  const CUresult result = real().cuDevicePrimaryCtxRetain(context, device);
  if (result == CUDA_SUCCESS) tracked().context(*context, device);
  return result;
}

CUresult context_current(CUcontext context) {
  const CUresult result = real().cuCtxSetCurrent(context);
  if (result == CUDA_SUCCESS) here = tracked().device_of(context);
  return result;
}

CUresult stream_create(CUstream* stream, unsigned flags) {
  const CUresult result = Forward<&Functions::cuStreamCreate>::in_context(stream, flags);
  if (result == CUDA_SUCCESS) tracked().stream(*stream, here);
  return result;
}

CUresult stream_synchronize(CUstream stream) {
  while (tracked().stalled(stream)) ::pause();
  if (is(Lie::no_sync) && tracked().waits(stream, false)) return CUDA_SUCCESS;
  const CUresult result = Forward<&Functions::cuStreamSynchronize>::in_context(stream);
  return context_failed(tracked().device_of(stream)) ? CUDA_ERROR_ILLEGAL_ADDRESS : result;
}

CUresult stream_wait(CUstream stream, CUevent event, unsigned flags) {
  const int waits = tracked().device_of(stream);
  const int waited_for = tracked().device_of(event);
  const bool forward = waits == told().to && waited_for == told().from;
  const bool back = waits == told().from && waited_for == told().to;
  if (is(Lie::no_wait) && forward) return CUDA_SUCCESS;
  if (forward || back) tracked().waits(stream, true);
  return Forward<&Functions::cuStreamWaitEvent>::in_context(stream, event, flags);
}

CUresult event_record(CUevent event, CUstream stream) {
  const CUresult result = Forward<&Functions::cuEventRecord>::in_context(event, stream);
  if (result == CUDA_SUCCESS) tracked().event(event, tracked().device_of(stream));
  return result;
}

CUresult event_elapsed(float* milliseconds, CUevent from, CUevent to) {
  const CUresult result = Forward<&Functions::cuEventElapsedTime>::in_context(milliseconds, from, to);
  if (result != CUDA_SUCCESS || tracked().device_of(from) != told().from) return result;
  if (is(Lie::half_times)) *milliseconds /= 2;
  if (is(Lie::tenth_times)) *milliseconds /= 10;
  return result;
}

}  // namespace p2pd::liar
