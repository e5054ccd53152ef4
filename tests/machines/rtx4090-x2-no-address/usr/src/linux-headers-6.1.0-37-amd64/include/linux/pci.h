int __must_check pci_resize_resource(struct pci_dev *dev, int i, int size);
