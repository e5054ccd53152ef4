#define UTS_RELEASE "6.8.0-60-generic"
