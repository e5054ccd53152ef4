#define UTS_RELEASE "6.1.0-38-amd64"
