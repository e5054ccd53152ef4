// SPDX-License-Identifier: MIT
/* Contents of the stand-in libraries: their version, and results that mean "no GPU". */
const char nvidia_version[] = "nvidia id: NVIDIA driver library  " VERSION;

#ifdef LIBCUDA
int cuInit(unsigned int flags)
{
	return 100; /* CUDA_ERROR_NO_DEVICE */
}

int cuDriverGetVersion(int *version)
{
	*version = 12080;
	return 0;
}
#endif

#ifdef LIBNVIDIA_ML
int nvmlInit_v2(void)
{
	return 9; /* NVML_ERROR_DRIVER_NOT_LOADED */
}

int nvmlShutdown(void)
{
	return 1; /* NVML_ERROR_UNINITIALIZED */
}
#endif
