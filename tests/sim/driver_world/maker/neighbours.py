# SPDX-License-Identifier: MIT
"""Packages that are not part of the driver, in a flat archive like NVIDIA's for CUDA: purge patterns of guides (^nvidia-.*, libnvidia-*,
cuda*, nsight*, libcudnn*) remove them too, and a driver swap must keep them."""


from . import debian
from .debs import Package, Texts

TEXTS = Texts("cuda.files")
TOOLKIT, CONTAINER, NSIGHT = "12.8.1-1", "1.17.6-1", "2025.1.1.2-1"


def packages():
    container = f"nvidia-container-toolkit-base (= {CONTAINER}), libnvidia-container-tools (>= {CONTAINER}), libnvidia-container-tools (<< 2.0.0)"
    return [
        Package("cuda-toolkit-config-common", "12.8.90-1", {"Multi-Arch": "foreign"},
                {"etc/ld.so.conf.d/000_cuda.conf": "/usr/local/cuda/targets/x86_64-linux/lib\n"}, section="devel"),
        Package("cuda-nvcc-12-8", "12.8.93-1", {"Depends": "cuda-toolkit-config-common"},
                {"usr/local/cuda-12.8/bin/nvcc": ("program", "#!/bin/sh\necho 'Cuda compilation tools, release 12.8, V12.8.93'\n")}, section="devel"),
        Package("nsight-compute-2025.1.1", NSIGHT, {}, {"opt/nvidia/nsight-compute/2025.1.1/ncu": ("program", "#!/bin/sh\nexit 1\n")}, section="devel"),
        Package("nsight-compute", NSIGHT, {"Depends": "nsight-compute-2025.1.1"}, section="devel"),
        Package("cuda-toolkit-12-8", TOOLKIT, {"Depends": "cuda-toolkit-config-common, cuda-nvcc-12-8 (>= 12.8.93), nsight-compute-2025.1.1"},
                {"usr/local/cuda-12.8/version.json": '{"cuda": {"name": "CUDA SDK", "version": "12.8.1"}}\n'},
                TEXTS.scripts("cuda-toolkit-12-8"), "devel"),
        Package("libcudnn9-cuda-12", "9.8.0.87-1", {}, debian.libs(["libcudnn"], "9.8.0", folder=debian.LIB), section="libs"),
        Package("libnvidia-container1", CONTAINER, {"Depends": "libc6 (>= 2.14)"},
                debian.libs(["libnvidia-container"], "1.17.6", folder=debian.LIB), section="libs"),
        Package("libnvidia-container-tools", CONTAINER, {"Depends": f"libnvidia-container1 (>= {CONTAINER})"}, section="utils"),
        Package("nvidia-container-toolkit-base", CONTAINER, {},
                {"usr/bin/nvidia-ctk": ("program", TEXTS.text("nvidia-ctk")),
                 "etc/nvidia-container-runtime/config.toml": TEXTS.text("config.toml")}, section="utils"),
        Package("nvidia-container-toolkit", CONTAINER, {"Depends": container}, section="utils"),
    ]
