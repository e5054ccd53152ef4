#define UTS_RELEASE "6.1.0-37-amd64"
