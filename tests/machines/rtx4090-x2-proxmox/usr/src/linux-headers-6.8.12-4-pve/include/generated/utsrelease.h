#define UTS_RELEASE "6.8.12-4-pve"
